"""Protocols of verifiers: which drafted tokens stay, by the target's logits after each node of a tree."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

from decoder.events import Verification
from decoder.sampling.on_device import DeviceSampling
from decoder.tree import TokenTree

Probabilities: TypeAlias = Callable[[Float[Tensor, "W V"], int], Float[Tensor, "W V"]]
"""(the draft's logits after nodes of one depth, the depth) -> logits of the estimated target's choice."""


class Verifier(Protocol):
    """A verification rule on the host; greedy is one."""

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """The accepted nodes below the root, in path order, and the token after them.

        The root is the text's last token. `logits` are the target's after each node, over the token ids that both
        models know. `first` is the position, from 0, of the token after the root.
        """

    def statistics(
        self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int, path: Sequence[int], committed: Sequence[int]
    ) -> Verification | None:
        """Statistics of a verified round; None where none of its tokens was sampled.

        `committed` are those tokens of the accepted path, and the one after it, that became text.
        """


class DeviceVerifier(Protocol):
    """A verification rule within a CUDA graph. Equal rules hash alike and share captured graphs."""

    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        """The target's token after each row, on the logits' device; a CUDA graph can capture it.

        `positions[d]` is the position of the token after a node of depth d. `levels` are 1 + depth, and 0 for padding
        rows, whose token is undefined.
        """

    def probabilities(
        self, sampling: DeviceSampling, positions: Int[Tensor, "D"], vocabulary: int
    ) -> Probabilities | None:
        """Function from the draft's logits to those of the target's choice; None where they are the draft's own."""
