"""Interface of all drafters of one text; independent of the target."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from decoder.draft.delayed_shape import DelayedTree
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule


@dataclass(frozen=True)
class Proposal:
    """Draft tree of one round."""

    tree: TokenTree
    forwards: int = 0
    """Draft forward passes in the round."""
    shape: DelayedTree | None = None
    """Shape of a sampled tree; None for a deterministic tree."""


class Proposer(ABC):
    """Proposes each round's draft: a tree, a chain, or only the root. The defaults keep no cache and learn nothing."""

    @abstractmethod
    def read(self, tokens: Sequence[int]) -> None:
        """Reads the prompt without its last token."""

    def reserve(self, rows: int) -> None:
        """Reserves cache rows for the whole text and a tree. If a tree is larger, the cache grows during drafting."""

    @abstractmethod
    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        """Drafts a tree of at most `room` levels below its root, which is the last token of `text`."""

    def record_choices(self, burst: Sequence[int]) -> None:
        """`burst`: the tokens that the target chose after the root: the accepted tokens and the bonus token."""

    def commit(self, path: Sequence[int]) -> None:
        """Keeps the cache rows of committed nodes and drops the rows of all other nodes."""

    def record_times(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """Learns from the times of drafting, of verification and of the whole round."""
