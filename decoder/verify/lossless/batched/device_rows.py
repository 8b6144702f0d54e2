"""Rows of probabilities as tensors: what is drawn from them, and how a few numbers of them reach the host."""

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
"""From a tree, the target's and the draft's rows after its nodes, of shape (N, V) on one device, and coins.

The draft's rows are zeros after leaves.
"""
_SMALLEST = 1e-300
"""No waiting time is 0: the token would win whatever its probability."""


def normalised(weights: Float[Tensor, "N V"], fallback: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Distributions in proportion to `weights`; rows of `fallback` where rounding left none of them."""
    totals = weights.sum(-1, keepdim=True)
    return torch.where(totals > 0, weights / totals, fallback)


def residual(
    target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"], removed: Float[Tensor, "N"]
) -> Float[Tensor, "N V"]:
    """The distributions in proportion to (p - removed q)+, or p where nothing is left."""
    left = torch.addcmul(target_probs, removed[:, None], draft_probs, value=-1).clamp_min_(0)
    return normalised(left, target_probs)


def ratio(over: Tensor, under: Tensor) -> Tensor:
    """min(1, over / under), elementwise; by a zero below 1 or 0, as anything stands above."""
    return as_probability(torch.where(under > 0, over / under, (over > 0).to(over.dtype)))


def share(part: Tensor, rest: Tensor) -> Tensor:
    """The quotient part / (part + rest) in [0, 1], elementwise; 1 where both are 0."""
    whole = part + rest
    return as_probability(torch.where(whole > 0, part / whole, 1.0))


def as_probability(values: Tensor) -> Tensor:
    """The values cut to [0, 1], elementwise; what is negligible is 0."""
    return torch.where(values < NEGLIGIBLE, 0.0, values.clamp_max(1))


def drawn_tokens(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N K"]:
    """The tokens drawn after each node, in draw order; token 0 fills the rows of nodes with fewer draws."""
    widest = max(map(len, tree.children))
    rows = [tree.drawn(node) + [0] * (widest - len(tree.children[node])) for node in range(len(tree))]
    return torch.tensor(rows, dtype=torch.long).reshape(len(tree), widest).to(device)


def draw_counts(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N"]:
    """How many draws were made after each node."""
    return torch.tensor([len(drawn) for drawn in tree.children]).to(device)


def to_host(*tensors: Tensor) -> list[Any]:
    """Small tensors as nested lists, all in one copy.

    Raises:
        ModelError: A number is NaN.
    """
    packed = torch.cat([tensor.double().flatten() for tensor in tensors]).cpu()
    require_numbers(float(packed.sum()))
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [part.reshape(tensor.shape).tolist() for part, tensor in zip(parts, tensors, strict=True)]


def totals(target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> Float[Tensor, "2"]:
    """Two sums that are NaN where any probability is; they travel to the host with what else is copied."""
    return torch.stack([target_probs.sum(), draft_probs.sum()])


def draw(rows: Float[Tensor, "R V"], generator: RandomGenerator) -> Int[Tensor, "R"]:
    """A token from each row, on its device: by the coins themselves on a CPU, elsewhere by noise that they seed."""
    if rows.device.type == "cpu":
        return torch.tensor([generator.choice(row) for row in rows.double().numpy()], dtype=torch.long)
    noise = torch.Generator(rows.device).manual_seed(generator.integers(1 << 63))
    return race(rows, torch.empty_like(rows, dtype=torch.float64).exponential_(generator=noise))


def race(rows: Float[Tensor, "R V"], waits: Float[Tensor, "R V"]) -> Int[Tensor, "R"]:
    """The token of each row that arrives first, if it waits so long, exponentially, over its probability.

    It follows the row; a token of probability 0 never arrives. No sums, so rounding cannot select a wrong token.
    """
    return (rows / waits.clamp_min(_SMALLEST)).argmax(-1)
