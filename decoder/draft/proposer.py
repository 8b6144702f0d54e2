"""What drafts for one text: a model, or whatever else can guess how it goes on. Knows nothing of the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoder.draft.delayed_shape import DelayedTree
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule


@dataclass(frozen=True)
class Proposal:
    """What one round verifies."""

    tree: TokenTree
    forwards: int = 0
    shape: DelayedTree | None = None
    """As it was drawn; None of a tree that is not drawn."""


class Proposer(Protocol):
    """Grows a tree, a chain or nothing but its root, round by round."""

    def read(self, tokens: Sequence[int]) -> None:
        """Takes in the prompt but for its last token."""

    def reserve(self, rows: int) -> None:
        """Makes room for the whole text and a tree."""

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        """A tree whose root is the last token of the text so far; the context leaves room for `room` levels."""

    def chosen(self, burst: Sequence[int]) -> None:
        """Takes note of what the target chose from the root on: the accepted tokens and one more."""

    def commit(self, path: Sequence[int]) -> None:
        """Keeps what belongs to these nodes, the accepted ones that became text, and drops the others."""

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """Takes note of what the round took."""
