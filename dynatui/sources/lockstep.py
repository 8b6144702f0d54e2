"""Two recordings played side by side: at any moment both have decoded for the same time.

The time is each watched method's own decode time, so neither pauses, nor speed, nor the other methods of a race count,
and what is farther is faster. Knows no screen and needs no thread.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from decoder.errors import RecordingError
from decoder.events import Event, Round, Run
from dynatui.clean import clean_line
from dynatui.sources.playback import IndexedRun, indexed
from dynatui.sources.source import REST_S, bounded_speed, readable_speed
from dynatui.state.run_state import Failure, Prompt, RunState
from dynatui.state.timeline import Timeline


class Side:
    """One recording, opened at one of its runs.

    Raises:
        RecordingError: The first run cannot be read; one that follows it is a state of failure.
    """

    def __init__(self, name: str, runs: Sequence[Sequence[Event]]) -> None:
        self.name = clean_line(name)
        self._runs = runs
        self.runs = len(runs)
        self._begin(0, indexed(runs[0]))

    @property
    def rounds(self) -> int:
        """Rounds of the watched method in the opened run."""
        return len(self.times)

    @property
    def seconds(self) -> float:
        """Decode time of the watched method in the opened run."""
        return self.times[-1] if self.times else 0.0

    @property
    def rate(self) -> float:
        """Tokens a second in the opened run."""
        rounds = [self._run.events[place] for place in self._places]
        tokens = sum(len(event.committed) for event in rounds if isinstance(event, Round))
        return tokens / self.seconds if self.seconds > 0 else 0.0

    def open(self, number: int) -> None:
        """Goes to the beginning of a run, counted from 0."""
        try:
            self._begin(number, indexed(self._runs[number]))
        except RecordingError as error:
            self._begin(number, indexed(()))
            self._timeline.take(Failure(str(error), error.exit_code))

    def at(self, seconds: float) -> RunState:
        """The opened run after so much decode time; after all of it, with its end and its summary."""
        rounds = bisect_right(self.times, seconds)
        over = rounds == self.rounds
        end = len(self._run.events) if over else self._places[rounds]
        while self._next < end:
            self._timeline.take(self._run.events[self._next])
            self._next += 1
        state = self._timeline.state
        return state if over and self._next == end else self._timeline.at(state.watched, rounds)

    def _begin(self, number: int, opened: IndexedRun) -> None:
        self._run, self._next = opened, 0
        run = opened.events[0] if opened.events else None
        watched = next(iter(run.methods), "") if isinstance(run, Run) else ""
        self._places = opened.rounds.get(clean_line(watched), ())
        rounds = [opened.events[place] for place in self._places]
        self.times = list(accumulate((event.t for event in rounds if isinstance(event, Round)), max))
        """When the watched method's rounds end."""
        self._timeline = Timeline()
        self._timeline.take(Prompt(number + 1, self.runs))


class Lockstep:
    """Plays the first runs of both, then the second ones, as far as both have them."""

    def __init__(self, left: Side, right: Side, speed: float | None = None) -> None:
        self.sides = (left, right)
        self.pairs = min(left.runs, right.runs)
        self.number = 0
        """Which pair of runs is played, counted from 0."""
        self.played_s = 0.0
        self.paused = False
        self.speed = bounded_speed(speed or readable_speed(max(left.rate, right.rate)))
        self._rested_s = 0.0
        self._last: float | None = None

    @property
    def seconds(self) -> float:
        """How long the slower of the two is."""
        return max(side.seconds for side in self.sides)

    @property
    def ended(self) -> bool:
        """Whether both are through."""
        return self.played_s >= self.seconds

    def states(self) -> tuple[RunState, RunState]:
        """Both as they are now."""
        left, right = self.sides
        return left.at(self.played_s), right.at(self.played_s)

    def advance(self, now: float) -> None:
        """Plays on to `now`, in seconds; a pair that is through stays for a while and gives way to the next."""
        passed = 0.0 if self._last is None else now - self._last
        self._last = now
        if self.paused:
            return
        if not self.ended:
            self.seek(self.played_s + passed * self.speed)
        elif self.number + 1 < self.pairs:
            self._rested_s += passed
            if self._rested_s >= REST_S:
                self.go(1)

    def seek(self, seconds: float) -> None:
        """Goes to a time in both."""
        self.played_s = min(max(0.0, seconds), self.seconds)
        self._rested_s = 0.0

    def set_speed(self, speed: float) -> None:
        """Changes the speed of the show."""
        self.speed = bounded_speed(speed)

    def step(self, rounds: int) -> None:
        """Goes on by so many rounds of either, or back when negative."""
        times = sorted({0.0, *self.sides[0].times, *self.sides[1].times})
        find = bisect_right if rounds > 0 else bisect_left
        place = find(times, self.played_s) + rounds - (rounds > 0)
        self.seek(times[min(max(0, place), len(times) - 1)])

    def go(self, step: int) -> None:
        """Leaves this pair of runs for another, round and round."""
        self.number = (self.number + step) % self.pairs
        for side in self.sides:
            side.open(self.number)
        self.seek(0.0)
