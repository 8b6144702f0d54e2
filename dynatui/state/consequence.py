"""The effect of the user's last turn of knobs: compares the rounds before and after the turn.

The effect is a pure function of one method's state, so the screen can show it at each round of a recording. Turns
within a few rounds of each other count as one turn, from the values before the first of these turns to the values after
the last one. Knows neither growth rules nor keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

from decoder.events import Round
from dynatui.state.ab_comparison import Difference, Samples, compared, samples_of
from dynatui.state.lane import IN_A_ROW, Change, LaneState

ROUNDS = IN_A_ROW
"""Number of rounds that are compared before and after a turn; turns that are fewer rounds apart are joined."""
_compared = lru_cache(maxsize=8)(compared)


@dataclass(frozen=True)
class Consequence:
    marks: tuple[Change, ...]
    """One turn per knob whose value has changed, from the old to the new value."""
    before: Samples
    after: Samples
    rounds: tuple[Round, ...]

    @property
    def complete(self) -> bool:
        """Whether all `ROUNDS` rounds after the turn are decoded."""
        return len(self.after) == ROUNDS

    @property
    def nodes(self) -> tuple[float, float] | None:
        """Mean drafted nodes per round, before and after the turn."""
        if not self.after:
            return None
        before, after = (fmean(sample.drafted for sample in side) for side in (self.before, self.after))
        return before, after

    @property
    def differences(self) -> tuple[Difference, ...]:
        """After minus before; empty while a side has fewer rounds than `ROUNDS`."""
        return _compared(self.before, self.after, ROUNDS) or ()


def consequence(lane: LaneState) -> Consequence | None:
    """The effect of the last turn; None if there is no turn or no round before it, or if the turn was undone."""
    turns = [change for change in lane.changes if change.by_user]
    if not turns:
        return None
    first = _first_in_a_row(turns)
    marks, began, last = _joined(turns[first:]), turns[first].round, turns[-1].round
    before = samples_of(lane, since=max(0, began - ROUNDS), until=began)
    if not marks or not before:
        return None
    after = samples_of(lane, since=last, until=last + ROUNDS)
    return Consequence(marks, before, after, tuple(lane.past[last : last + ROUNDS]))


def _first_in_a_row(turns: Sequence[Change]) -> int:
    first = len(turns) - 1
    while first and turns[first].round - turns[first - 1].round < IN_A_ROW:
        first -= 1
    return first


def _joined(turns: Sequence[Change]) -> tuple[Change, ...]:
    """The turns joined into one per knob, except the history switch and knobs that are back at their first value."""
    marks = dict[str, Change]()
    for turn in turns:
        begun = marks.get(turn.name, replace(turn, presses=0))
        marks[turn.name] = replace(turn, old=begun.old, first=begun.first, presses=begun.presses + turn.presses)
    return tuple(mark for mark in marks.values() if mark.old != mark.new and mark.name != "history")
