"""The session protocol: a method decodes one text round by round and returns the outcome of each round."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from decoder.draft.delayed_shape import DelayedTree
from decoder.events import Knobs, Verification
from decoder.session.steering import KnobState, Turn
from decoder.tree import TokenTree, ruled_part, share_of_depth
from decoder.tree_rules import Rules

Reason = Literal["length", "eos"]


@dataclass
class Outcome:
    """One round so far; a field is None if its value is not known yet or cannot be known for the method."""

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
    """Rules of the tree; None for a method without a tree."""
    room: int = 0
    """Number of tree levels below the root that still fit in the context."""
    turned_before: list[Turn] = field(default_factory=list)
    turned_after: list[Turn] = field(default_factory=list)
    finished: Reason | None = None
    stalled_s: float = 0.0
    """Seconds for which the round was stalled; set by the caller of `Session.step`."""
    waited_s: float = 0.0
    """Seconds that threads waited for a processor, summed over the threads; set by the caller of `Session.step`."""
    shape: DelayedTree | None = None
    """Shape of a sampled tree; None for a deterministic tree."""
    statistics: Callable[[], Verification | None] = lambda: None
    """Computes the statistics of the verification; may only be called before the next round."""


AtStage = Callable[[Literal["drafted", "verified"], Outcome], float]
"""Callback within a round: (stage, outcome so far) -> seconds for which it paused the round."""


def go_on(_stage: str, _outcome: Outcome) -> float:
    return 0.0


class Session(ABC):
    """Decodes one text by one method."""

    text: list[int]
    """Token ids of the prompt and of all committed tokens."""

    @abstractmethod
    def prefill(self) -> float:
        """Reads the prompt; returns how long this took, in seconds.

        Raises:
            LogitsError: A token is chosen here, but the largest logit is not finite (`forward.token_choice`).
        """

    @abstractmethod
    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        """Decodes one round; `turns` are all knob changes by the user so far in the run.

        Raises:
            LogitsError: The target's largest logit is not finite. The text then ends before this round.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the session, even if the text is not finished."""

    def prepare(self) -> str:
        """Does one piece of work that a later round needs; called after `prefill` and between rounds. Returns the
        progress in words, or an empty string if no such work is left.
        """
        return ""


def learnt(knobs: KnobState | None, outcome: Outcome, root_depth: int = 0) -> list[Turn]:
    """Applies the history rule after a round; returns the knob changes that events report. `root_depth` is 1 if the
    root is drafted too. Nodes from suffix lookup are left out, since no knob affects them.
    """
    accepted, levels = ruled_part(outcome.accepted, outcome.tree.depths, outcome.tree.origins or ())
    levels += root_depth
    return knobs.learn(share_of_depth(accepted, levels)) if knobs and levels else []


class TokenLimit:
    def __init__(self, eos: frozenset[int], max_new_tokens: int) -> None:
        self._eos = eos
        self._left = max_new_tokens

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], Reason | None]:
        """The tokens up to the end of the text, and the reason if the text ends within them."""
        committed = list(tokens[: self._left])
        end = next((index for index, token in enumerate(committed) if token in self._eos), None)
        if end is not None:
            committed = committed[: end + 1]
        self._left -= len(committed)
        if end is not None:
            return committed, "eos"
        return committed, None if self._left else "length"
