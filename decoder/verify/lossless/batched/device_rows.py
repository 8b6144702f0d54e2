"""Rows of probabilities as tensors: arithmetic, sampling, and copies of small tensors to the host."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import NEGLIGIBLE, require_numbers
from decoder.verify.lossless.top_down import Accepted

VerifyOnDevice: TypeAlias = Callable[[DrawnTree, Tensor, Tensor, RandomGenerator], Accepted]
"""(tree, target rows, draft rows, generator) -> accepted nodes and next token. Rows are probabilities, shape (N, V), on
one device; the draft's after leaves are zeros.
"""
_SMALLEST = 1e-300
"""Least waiting time in `race`: a token with 0 would win even if its probability is tiny."""


def normalised(weights: Float[Tensor, "N V"], fallback: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """The row of `fallback` where all weights are 0."""
    totals = weights.sum(-1, keepdim=True)
    return torch.where(totals > 0, weights / totals, fallback)


def residual(
    target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"], removed: Float[Tensor, "N"]
) -> Float[Tensor, "N V"]:
    """(p - removed q)+ normalised; p where that is 0 everywhere."""
    left = torch.addcmul(target_probs, removed[:, None], draft_probs, value=-1).clamp_min_(0)
    return normalised(left, target_probs)


def ratio(over: Tensor, under: Tensor) -> Tensor:
    """Elementwise; see `rows.ratio`."""
    return as_probability(torch.where(under > 0, over / under, (over > 0).to(over.dtype)))


def share(part: Tensor, rest: Tensor) -> Tensor:
    """Elementwise; see `rows.share`."""
    whole = part + rest
    return as_probability(torch.where(whole > 0, part / whole, 1.0))


def as_probability(values: Tensor) -> Tensor:
    """Clamped to [0, 1]; below `NEGLIGIBLE` 0."""
    return torch.where(values < NEGLIGIBLE, 0.0, values.clamp_max(1))


def drawn_tokens(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N K"]:
    """Sampled after each node, in order; shorter rows are padded with token 0."""
    widest = max(map(len, tree.children))
    rows = [tree.drawn(node) + [0] * (widest - len(tree.children[node])) for node in range(len(tree))]
    return torch.tensor(rows, dtype=torch.long).reshape(len(tree), widest).to(device)


def draw_counts(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N"]:
    return torch.tensor([len(drawn) for drawn in tree.children]).to(device)


def to_host(*tensors: Tensor) -> list[Any]:
    """Copies small tensors in a single copy; returns nested lists. Raises ModelError if a number is NaN."""
    packed = torch.cat([tensor.double().flatten() for tensor in tensors]).cpu()
    require_numbers(float(packed.sum()))
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [part.reshape(tensor.shape).tolist() for part, tensor in zip(parts, tensors, strict=True)]


def totals(target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> Float[Tensor, "2"]:
    """Sums of both models' probabilities: NaN if any probability is."""
    return torch.stack([target_probs.sum(), draft_probs.sum()])


def draw(rows: Float[Tensor, "R V"], generator: RandomGenerator) -> Int[Tensor, "R"]:
    """A token for each row. On other devices than a CPU, the device's generator draws, with a seed from `generator`."""
    if rows.device.type == "cpu":
        return torch.tensor([generator.choice(row) for row in rows.double().numpy()], dtype=torch.long)
    noise = torch.Generator(rows.device).manual_seed(generator.integers(1 << 63))
    return race(rows, torch.empty_like(rows, dtype=torch.float64).exponential_(generator=noise))


def race(rows: Float[Tensor, "R V"], waits: Float[Tensor, "R V"]) -> Int[Tensor, "R"]:
    """The first arrival of an exponential race in each row: a token arrives at its waiting time (`waits`, exponential
    with mean 1) divided by its probability, so a token of probability 0 never does, even with rounding.
    """
    return (rows / waits.clamp_min(_SMALLEST)).argmax(-1)
