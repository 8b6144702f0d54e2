"""The user's changes of temperature and top-p, which apply to the same positions of all texts of a race."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from decoder.events import Knob
from decoder.knobs import KnobName
from decoder.methods import require_knobs
from decoder.run.lane import Lane
from decoder.sampling.settings import SAMPLING, Schedule
from decoder.session.knob_state import applied
from decoder.session.steering import Turn


class Resampling:
    def __init__(self, schedule: Schedule, prompt_tokens: int, ahead: int) -> None:
        """`ahead`: most tokens that a method has chosen but not yet reported."""
        self._schedule = schedule
        self._prompt_tokens = prompt_tokens
        self._ahead = ahead
        self._seen = 0
        self._turns: dict[tuple[int, KnobName], Turn] = {}
        """By (first position to which the change applies, knob)."""
        self._reported = Counter[str]()
        """Changes in events, by method."""

    def told(self, turns: Sequence[Turn], lane: Lane, furthest: int) -> Iterator[Knob]:
        """Schedules what is new of the user's turns; yields the changes that apply to the lane's next token."""
        self._take(turns, furthest)
        yield from self._reached(lane)

    def _take(self, turns: Sequence[Turn], furthest: int) -> None:
        """New changes apply from the first position that no method has reached; `furthest` tokens are generated.

        Several changes of one knob at one position are merged into one, which is dropped if it would restore the value
        before them.
        """
        new, self._seen = turns[self._seen :], len(turns)
        require_knobs(turn.name for turn in new)
        position = self._prompt_tokens + self._ahead + furthest
        own = [turn for turn in new if turn.rules_name in (None, SAMPLING)]
        sampling, in_force = applied(self._schedule.latest, own)
        for turn in in_force:
            before = self._turns.pop((position, turn.name), turn).old
            if turn.value != before:
                self._turns[position, turn.name] = replace(turn, old=before)
        if in_force:
            self._schedule.turn(position, sampling)

    def _reached(self, lane: Lane) -> Iterator[Knob]:
        """Changes that apply to a lane's next token and are not reported yet; none for method `hf`, since transformers
        keeps its initial settings.
        """
        if lane.method.by_module:
            return
        position = self._prompt_tokens + lane.generated
        unreported = list(self._turns.items())[self._reported[lane.name] :]
        in_force = [turn for (start, _), turn in unreported if start <= position]
        self._reported[lane.name] += len(in_force)
        yield from lane.knob_events(in_force)
