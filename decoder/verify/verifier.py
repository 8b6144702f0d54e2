"""What decides which drafted tokens stay, by the target's logits after each node of a tree."""

from typing import Protocol

from jaxtyping import Float, Int
from torch import Tensor

from decoder.tree import TokenTree


class Verifier(Protocol):
    """One way to decide; greedy is one."""

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """The accepted nodes below the root, which belongs to the text, in path order, and the token after them.

        Logits are the target's after each node, over the ids that both models know. `first` is the position, from 0, of
        the token that follows the root.
        """


class DeviceVerifier(Protocol):
    """One way to decide within a graph. Equal ones hash alike, and share what is captured with them."""

    def choose(self, logits: Float[Tensor, "N V"]) -> Int[Tensor, "N"]:
        """The target's token after each row, where the logits are; a graph can capture it."""
