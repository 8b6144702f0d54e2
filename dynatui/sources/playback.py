"""Playback of a recording, or of two recordings side by side, at equal decode times of their watched methods.

Records can only be appended, so a step back appends the run again from its beginning. One run is in memory at a time.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise

from decoder.errors import RecordingError
from decoder.events import Event, Round, Run
from decoder.prompt import AnyPrompt
from dynatui.clean import clean, clean_line
from dynatui.sources.source import REST_S, Reader, bounded_speed, readable_speed
from dynatui.state.run_state import Failure, Prompt, RunState
from dynatui.state.session_log import opening_of, prompt_of
from dynatui.state.timeline import Timeline


@dataclass(frozen=True)
class IndexedRun:
    events: Sequence[Event]
    due_s: Sequence[float]
    """When each event is played: a round at its wall time, any other event at the time of the event before it."""
    rounds: Mapping[str, tuple[int, ...]]
    """Indices in `events` of each method's rounds."""

    @property
    def seconds(self) -> float:
        return self.due_s[-1] if self.due_s else 0.0


def indexed(events: Sequence[Event]) -> IndexedRun:
    places = defaultdict[str, list[int]](list)
    for place, event in enumerate(events):
        if isinstance(event, Round):
            places[clean_line(event.method)].append(place)
    due_s = list(accumulate((event.wall_s if isinstance(event, Round) else 0.0 for event in events), max))
    return IndexedRun(events, due_s, {method: tuple(rounds) for method, rounds in places.items()})


class TraceSource(Reader):
    """Plays recorded runs by their wall time; raises a RecordingError if the first run cannot be read."""

    def __init__(
        self,
        runs: Sequence[Sequence[Event]],
        speed: float | None = None,
        prompt_of: Callable[[int], AnyPrompt] | None = None,
    ) -> None:
        """If `speed` is None, a readable speed is chosen. `prompt_of` reads only the prompt of a run."""
        super().__init__()
        self.playback = self
        self._runs = runs
        self._prompt_of = prompt_of or (lambda number: _prompt(runs[number]))
        self.number, self.count = 0, len(runs)
        """Index of the shown run, and number of runs."""
        self._run = indexed(runs[0])
        self.speed = bounded_speed(speed or readable_speed(_shown_rate(self._run.events)))
        self._next = 0
        self._played_s = 0.0
        self._last: float | None = None

    @property
    def events(self) -> Sequence[Event]:
        """All events of the shown run, played or not."""
        return self._run.events

    def opening(self, number: int) -> str:
        """The beginning of a run's prompt, without control characters; empty if the run cannot be read."""
        with suppress(RecordingError):  # an unreadable run is reported when it is shown
            return opening_of(self._prompt_of(number))
        return ""

    def text(self, method: str, number: int) -> str:
        """A method's text in a run, without control characters; raises a RecordingError if the run is invalid."""
        events = self._run.events if number == self.number else self._runs[number]
        rounds = (event for event in events if isinstance(event, Round) and clean_line(event.method) == method)
        return clean("".join(event.text for event in rounds))

    def length(self, method: str) -> tuple[int, float]:
        """Number of rounds of a method in the present run, and their decode time in seconds."""
        rounds = self._run.rounds.get(method, ())
        last = self._run.events[rounds[-1]] if rounds else None
        return len(rounds), last.t if isinstance(last, Round) else 0.0

    @property
    def played_s(self) -> tuple[float, float]:
        """Played time and duration of the present run at speed 1."""
        return min(self._played_s, self._run.seconds), self._run.seconds

    def advance(self, now: float) -> None:
        passed = 0.0 if self._last is None else now - self._last
        self._last = now
        if not self.paused:
            self.play(passed * self.speed)

    def play(self, seconds: float) -> None:
        """Plays on for `seconds`; the next run begins `REST_S` seconds after the end of a run."""
        self._played_s += seconds
        self._append_due()
        while self._over and (ahead_s := self._played_s - self._run.seconds - REST_S) >= 0:
            self._open(self.number + 1)
            self._played_s = ahead_s
            self._append_due()

    def seek_round(self, method: str, rounds: int) -> None:
        """Moves to the end of a method's first `rounds` rounds; to move back, appends the run again."""
        places = self._run.rounds.get(method, ())
        end = places[min(rounds, len(places)) - 1] + 1 if rounds > 0 and places else 0
        self._played_s = self._run.due_s[end - 1] if end else 0.0
        if end < self._next:
            self._next = 0
        while self._next < end:
            self._append()
        if not end:
            self._append_due()

    def set_speed(self, speed: float) -> None:
        self.speed = bounded_speed(speed)

    def go(self, step: int) -> None:
        self._open((self.number + step) % self.count)
        self._append_due()

    @property
    def _over(self) -> bool:
        """Whether the run has been played and another run follows; False for a run that cannot be read."""
        return 0 < len(self._run.events) == self._next and self.number + 1 < self.count

    def _open(self, number: int) -> None:
        self.number, self._next, self._played_s = number, 0, 0.0
        try:
            self._run = indexed(self._runs[number])
        except RecordingError as error:
            self._run = indexed(())
            self.records += [Prompt(number + 1, self.count), Failure(str(error), error.exit_code)]

    def _append_due(self) -> None:
        while self._next < len(self._run.events) and self._run.due_s[self._next] <= self._played_s:
            self._append()

    def _append(self) -> None:
        event = self._run.events[self._next]
        self._next += 1
        if isinstance(event, Run):
            self.records.append(Prompt(self.number + 1, self.count))
        self.records.append(event)


class Side:
    """One of two recordings that are played side by side; raises a RecordingError if the first run cannot be read."""

    def __init__(self, name: str, runs: Sequence[Sequence[Event]]) -> None:
        self.name = clean_line(name)
        self._runs = runs
        self.runs = len(runs)
        self._begin(0, indexed(runs[0]))

    @property
    def rounds(self) -> int:
        """Number of rounds of the watched method; `seconds` and `rate` also refer to the watched method."""
        return len(self.times)

    @property
    def seconds(self) -> float:
        return self.times[-1] if self.times else 0.0

    @property
    def rate(self) -> float:
        rounds = [self._run.events[place] for place in self._places]
        tokens = sum(len(event.committed) for event in rounds if isinstance(event, Round))
        return tokens / self.seconds if self.seconds > 0 else 0.0

    def open(self, number: int) -> None:
        try:
            self._begin(number, indexed(self._runs[number]))
        except RecordingError as error:
            self._begin(number, indexed(()))
            self._timeline.take(Failure(str(error), error.exit_code))

    def at(self, seconds: float) -> RunState:
        """State after `seconds` of decode time; after the last round, with the `End` events and the summary."""
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
        """Decode time at the end of each of the watched method's rounds."""
        self._timeline = Timeline()
        self._timeline.take(Prompt(number + 1, self.runs))


class Lockstep:
    """Plays two recordings side by side, in pairs of runs, until one recording has no more runs."""

    def __init__(self, left: Side, right: Side, speed: float | None = None) -> None:
        self.sides = (left, right)
        self.pairs = min(left.runs, right.runs)
        self.number = 0
        self.played_s = 0.0
        self.paused = False
        self.speed = bounded_speed(speed or readable_speed(max(left.rate, right.rate)))
        self._rested_s = 0.0
        self._last: float | None = None

    @property
    def seconds(self) -> float:
        return max(side.seconds for side in self.sides)

    @property
    def ended(self) -> bool:
        return self.played_s >= self.seconds

    def states(self) -> tuple[RunState, RunState]:
        left, right = self.sides
        return left.at(self.played_s), right.at(self.played_s)

    def advance(self, now: float) -> None:
        """The next pair begins `REST_S` seconds after the end of a pair."""
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
        self.played_s = min(max(0.0, seconds), self.seconds)
        self._rested_s = 0.0

    def set_speed(self, speed: float) -> None:
        self.speed = bounded_speed(speed)

    def step(self, rounds: int) -> None:
        """Moves to the round end that is `rounds` further, counting the round ends of both recordings."""
        times = sorted({0.0, *self.sides[0].times, *self.sides[1].times})
        find = bisect_right if rounds > 0 else bisect_left
        place = find(times, self.played_s) + rounds - (rounds > 0)
        self.seek(times[min(max(0, place), len(times) - 1)])

    def go(self, step: int) -> None:
        self.number = (self.number + step) % self.pairs
        for side in self.sides:
            side.open(self.number)
        self.seek(0.0)


def _prompt(events: Sequence[Event]) -> AnyPrompt:
    first = events[0] if events else None
    return prompt_of(first) if isinstance(first, Run) else ""


def _shown_rate(events: Sequence[Event]) -> float:
    """Tokens per second of the method with the first round, by the wall times in the recording."""
    rounds = [event for event in events if isinstance(event, Round)]
    watched = [event for event in rounds if event.method == rounds[0].method]
    seconds = sum(max(0.0, b.wall_s - a.wall_s) for a, b in pairwise(watched))
    return sum(len(event.committed) for event in watched) / seconds if seconds > 0 else 0.0
