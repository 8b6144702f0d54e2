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
"""(tree, target rows, draft rows, random generator) -> accepted nodes and next token.

Rows are probabilities, shape (N, V), on the same device. The draft's rows after leaves are zeros.
"""
_SMALLEST = 1e-300
"""Least waiting time in `race`, since a token with waiting time 0 would win even if its probability is tiny."""


def normalised(weights: Float[Tensor, "N V"], fallback: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Each row of `weights`, normalised to sum 1. If all weights of a row are 0, the row of `fallback` is used."""
    totals = weights.sum(-1, keepdim=True)
    return torch.where(totals > 0, weights / totals, fallback)


def residual(
    target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"], removed: Float[Tensor, "N"]
) -> Float[Tensor, "N V"]:
    """Residual distributions: max(target_probs - removed * draft_probs, 0), normalised.

    If the residual of a row is 0 everywhere, the row of `target_probs` is returned in its place.
    """
    left = torch.addcmul(target_probs, removed[:, None], draft_probs, value=-1).clamp_min_(0)
    return normalised(left, target_probs)


def ratio(over: Tensor, under: Tensor) -> Tensor:
    """Elementwise min(1, over / under). If `under` is 0, the result is 1 for positive `over` and 0 otherwise."""
    return as_probability(torch.where(under > 0, over / under, (over > 0).to(over.dtype)))


def share(part: Tensor, rest: Tensor) -> Tensor:
    """Elementwise part / (part + rest), in [0, 1]; 1 if both are 0."""
    whole = part + rest
    return as_probability(torch.where(whole > 0, part / whole, 1.0))


def as_probability(values: Tensor) -> Tensor:
    """Values clamped to [0, 1], elementwise; values below `NEGLIGIBLE` become 0."""
    return torch.where(values < NEGLIGIBLE, 0.0, values.clamp_max(1))


def drawn_tokens(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N K"]:
    """Tokens sampled after each node, in the order of sampling; shorter rows are padded with token 0."""
    widest = max(map(len, tree.children))
    rows = [tree.drawn(node) + [0] * (widest - len(tree.children[node])) for node in range(len(tree))]
    return torch.tensor(rows, dtype=torch.long).reshape(len(tree), widest).to(device)


def draw_counts(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N"]:
    """Number of tokens that were sampled after each node."""
    return torch.tensor([len(drawn) for drawn in tree.children]).to(device)


def to_host(*tensors: Tensor) -> list[Any]:
    """Copies small tensors to the host in a single copy; returns nested lists.

    Raises:
        ModelError: A number is NaN.
    """
    packed = torch.cat([tensor.double().flatten() for tensor in tensors]).cpu()
    require_numbers(float(packed.sum()))
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [part.reshape(tensor.shape).tolist() for part, tensor in zip(parts, tensors, strict=True)]


def totals(target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> Float[Tensor, "2"]:
    """Sums of both models' probabilities, for a check on the host: a sum is NaN if any probability is NaN."""
    return torch.stack([target_probs.sum(), draft_probs.sum()])


def draw(rows: Float[Tensor, "R V"], generator: RandomGenerator) -> Int[Tensor, "R"]:
    """Samples a token from each row. On a CPU, `generator` supplies the random numbers; on other devices, the device's
    own generator supplies them, with a seed from `generator`.
    """
    if rows.device.type == "cpu":
        return torch.tensor([generator.choice(row) for row in rows.double().numpy()], dtype=torch.long)
    noise = torch.Generator(rows.device).manual_seed(generator.integers(1 << 63))
    return race(rows, torch.empty_like(rows, dtype=torch.float64).exponential_(generator=noise))


def race(rows: Float[Tensor, "R V"], waits: Float[Tensor, "R V"]) -> Int[Tensor, "R"]:
    """Samples a token from each row as the first arrival of an exponential race.

    `waits` are exponential waiting times with mean 1. A token arrives at its waiting time divided by its probability,
    so a token of probability 0 never arrives, even with rounding.
    """
    return (rows / waits.clamp_min(_SMALLEST)).argmax(-1)
