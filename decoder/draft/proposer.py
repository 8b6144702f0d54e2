"""The protocol of drafters of one text: a model, lookups, or anything else. Knows nothing of the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoder.draft.delayed_shape import DelayedTree
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule


@dataclass(frozen=True)
class Proposal:
    """The tree that one round verifies."""

    tree: TokenTree
    forwards: int = 0
    shape: DelayedTree | None = None
    """Shape of a drawn tree; None for a deterministic one."""


class Proposer(Protocol):
    """Grows a tree, a chain or nothing but its root, round by round."""

    def read(self, tokens: Sequence[int]) -> None:
        """Takes in the prompt but for its last token."""

    def reserve(self, rows: int) -> None:
        """Makes room for the whole text and a tree."""

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        """A tree whose root is the last token of the text so far; the context leaves room for `room` levels."""

    def chosen(self, burst: Sequence[int]) -> None:
        """Records the target's choices from the root on: the accepted tokens and the bonus token."""

    def commit(self, path: Sequence[int]) -> None:
        """Keeps cache rows of these nodes, accepted and committed, and drops all others of the tree."""

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """Records the times of the round, in seconds."""
