"""Greedy verification: a drafted token is accepted if it is the target's most probable token.

Siblings have different tokens, so at most one child matches and the accepted path is unique (DynaTree paper, section
3.1).
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from decoder.forward.finite_logits import choices
from decoder.sampling.on_device import DeviceSampling
from decoder.tree import TokenTree
from decoder.verify.verifier import DeviceVerifier, Verifier


@dataclass(frozen=True)
class GreedyVerifier(Verifier, DeviceVerifier):
    """Chooses the most probable token; of equally probable ones, the one with the lowest id."""

    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        del sampling, positions, levels
        return logits.argmax(-1)

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """Computes in float32, as transformers' generate does."""
        del first
        return accept(tree, choices(logits).__getitem__)


def accept(tree: TokenTree, choice: Callable[[int], int]) -> tuple[list[int], int]:
    """Accepted nodes below the root, in path order, and the bonus token; `choice(node)` is the target's token after a
    node.
    """
    children: dict[tuple[int, int], int] = {
        (parent, token): node for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
    }
    path: list[int] = []
    node, token = 0, choice(0)
    while (child := children.get((node, token))) is not None:
        path.append(child)
        node, token = child, choice(child)
    return path, token
