"""Protocols of verifiers: which drafted tokens stay, by the target's logits after each node of a tree."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

from decoder.events import Verification
from decoder.sampling.on_device import DeviceSampling
from decoder.tree import TokenTree

Probabilities: TypeAlias = Callable[[Float[Tensor, "W V"], int], Float[Tensor, "W V"]]
"""(the draft's logits after nodes of one depth, that depth) -> logits of the target's probabilities, as guessed."""


class Verifier(Protocol):
    """A verification rule on the host; greedy is one."""

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """The accepted nodes below the root, which belongs to the text, in path order, and the token after them.

        Logits are the target's after each node, over the ids that both models know. `first` is the position, from 0, of
        the token that follows the root.
        """

    def statistics(
        self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int, path: Sequence[int], committed: Sequence[int]
    ) -> Verification | None:
        """What the distributions say of a round that was verified so; None where no token of it was sampled.

        Of the accepted path and the token after it, `committed` is what became text.
        """


class DeviceVerifier(Protocol):
    """One way to decide within a graph. Equal ones hash alike, and share what is captured with them."""

    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        """The target's token after each row, where the logits are; a graph can capture it.

        Positions are those of the tokens after nodes of depth 0, 1, 2, ... Levels are 1 for the root, and 0 for rows
        that are no nodes, whose token is of no meaning.
        """

    def probabilities(
        self, sampling: DeviceSampling, positions: Int[Tensor, "D"], vocabulary: int
    ) -> Probabilities | None:
        """What makes the draft guess this target's choices; None: the draft's logits are right as they are."""
