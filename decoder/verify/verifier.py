"""What decides which drafted tokens stay, by the target's logits after each node of a tree."""

from collections.abc import Sequence
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from decoder.tree import TokenTree


class Verifier(Protocol):
    """One way to decide; greedy is one."""

    def choose(self, logits: Float[Tensor, "N V"]) -> Sequence[int]:
        """The target's token after each of N rows."""

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"]) -> tuple[list[int], int]:
        """The accepted nodes below the root, in path order, and the token after them.

        Args:
            tree: Its root belongs to the text.
            logits: The target's after each node, over the ids that both models know.
        """
