"""The session protocol: a method decodes one text round by round and returns the outcome of each round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from decoder.draft.delayed_shape import DelayedTree
from decoder.events import Knobs, Verification
from decoder.session.knob_state import KnobState
from decoder.session.steering import Turn
from decoder.tree import TokenTree, ruled_part, share_of_depth
from decoder.tree_rules import Rules

Reason = Literal["length", "eos"]


def _nothing() -> None:
    return None


@dataclass
class Outcome:
    """Outcome of one round so far; fields are None where not computed yet, or unknown to the method."""

    tree: TokenTree
    accepted: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    round_s: float = 0.0
    draft_s: float | None = None
    verify_s: float | None = None
    commit_s: float | None = None
    target_forwards: int | None = None
    draft_forwards: int | None = None
    knobs: Knobs | None = None
    rules: Rules | None = None
    """Rules that the tree was drafted under; None for a method without a tree."""
    room: int = 0
    """Most levels of the tree within the context."""
    turned_before: list[Turn] = field(default_factory=list)
    turned_after: list[Turn] = field(default_factory=list)
    finished: Reason | None = None
    stalled_s: float = 0.0
    """See `Round`; set by the caller of the round."""
    shape: DelayedTree | None = None
    """Shape of a drawn tree; None for a deterministic one."""
    statistics: Callable[[], Verification | None] = _nothing
    """Statistics of a sampled round; computed on demand, before the next round."""


AtStage = Callable[[Literal["drafted", "verified"], Outcome], float]
"""Called within a round with the stage and the outcome so far; returns the seconds for which it paused the round."""


def go_on(_stage: str, _outcome: Outcome) -> float:
    """Does not pause the round."""
    return 0.0


class Session(Protocol):
    """Decoding of one text by one method."""

    @property
    def text(self) -> Sequence[int]:
        """Token ids of the prompt and of all committed tokens."""

    def prefill(self) -> float:
        """Reads the prompt; returns its duration in seconds."""

    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        """Decodes one round under the user's turns so far."""

    def close(self) -> None:
        """Ends the session before its text is finished."""


@runtime_checkable
class Prepares(Protocol):
    """A session that can do work in advance."""

    def prepare(self) -> bool:
        """Does a part of that work, between two rounds; returns whether there was any."""


def learnt(knobs: KnobState | None, outcome: Outcome, root_depth: int = 0) -> list[Turn]:
    """Moves knobs by history after a round; `root_depth` is the number of drafted levels that its tree does not show.

    In a tree of several origins, only nodes of the draft model count: rules drafted them.
    """
    accepted, levels = ruled_part(outcome.accepted, outcome.tree.depths, outcome.tree.origins or ())
    levels += root_depth
    return knobs.learn(share_of_depth(accepted, levels)) if knobs and levels else []


class TokenLimit:
    """End of a text: an end-of-text token or the length limit."""

    def __init__(self, eos: frozenset[int], max_new_tokens: int) -> None:
        self._eos = eos
        self._left = max_new_tokens

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], Reason | None]:
        """The tokens up to the end of the text, and the reason of that end; None where the text continues."""
        kept = list(tokens[: self._left])
        end = next((index for index, token in enumerate(kept) if token in self._eos), None)
        if end is not None:
            kept = kept[: end + 1]
        self._left -= len(kept)
        if end is not None:
            return kept, "eos"
        return kept, None if self._left else "length"
