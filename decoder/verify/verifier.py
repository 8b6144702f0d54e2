"""Base classes of verifiers. From the target's logits after each node of a tree, a verifier decides which nodes are
accepted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

from decoder.events import Verification
from decoder.sampling.on_device import DeviceSampling
from decoder.tree import TokenTree

Probabilities: TypeAlias = Callable[[Float[Tensor, "W V"], int], Float[Tensor, "W V"]]
"""(draft's logits after nodes of one depth, this depth) -> logits whose softmax estimates the probability that the
target chooses each token.
"""


class Verifier(ABC):
    """A verification rule on the host, for example greedy verification."""

    @abstractmethod
    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """Accepted nodes below the root, in path order, and the token after the last accepted node.

        The root is the text's last token. `logits` are the target's logits after each node. `first` is the position,
        from 0, of the token after the root.

        Raises:
            LogitsError: The logits after a node leave no choice. All nodes are checked, since NaN of one reaches those
                that mask it.
        """

    def statistics(
        self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int, path: Sequence[int], committed: Sequence[int]
    ) -> Verification | None:
        """Statistics of a verified round; None if no token of the round was sampled, or if a logit divided by a low
        temperature overflows. `committed` are the tokens of the accepted path and one more.
        """
        del tree, logits, first, path, committed
        return None


class DeviceVerifier(ABC):
    """A verification rule within CUDA graphs. Equal rules share captured graphs, so they must have equal hashes."""

    @abstractmethod
    def choose(
        self,
        logits: Float[Tensor, "N V"],
        sampling: DeviceSampling,
        positions: Int[Tensor, "D"],
        levels: Int[Tensor, "N"],
    ) -> Int[Tensor, "N"]:
        """The token that the target chooses after the node of each row. All operations can be captured in a CUDA graph.

        `positions[d]` is the position of the token after a node of depth d. `levels` is a node's depth + 1, and 0 for a
        padding row. The results of padding rows are undefined.
        """

    def probabilities(
        self, sampling: DeviceSampling, positions: Int[Tensor, "D"], vocabulary: int
    ) -> Probabilities | None:
        """Estimates the target's choice from the draft's logits; None if these are used unchanged."""
        del sampling, positions, vocabulary
        return None
