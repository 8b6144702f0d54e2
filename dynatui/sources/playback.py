"""A recording, shown as if it happened now: takes the engine's place behind the screen.

Knows no models and needs no thread: what is due is appended when the screen asks for it. Records only ever grow by
what follows, so a way back within a run is told as that run anew, from its beginning up to there.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from decoder.events import Event, Round, Run
from dynatui.clean import clean, clean_line
from dynatui.fold.state import Prompt, Record
from dynatui.sources.source import REST_S, bounded_speed, readable_speed


@dataclass(frozen=True)
class Reel:
    """Where one run lies among the events of a recording."""

    begin: int
    end: int
    """One past its last event."""
    rounds: Mapping[str, tuple[int, ...]]
    """Where the rounds of each method are."""


class TraceSource:
    """Plays recorded events by the wall time that they carry."""

    def __init__(self, events: Sequence[Event], speed: float | None = None) -> None:
        self.records: list[Record] = []
        self.controls = None
        self.playback = self
        self.recorded = None
        self.paused = False
        self.speed = bounded_speed(speed or readable_speed(_shown_rate(events)))
        self._events = events
        self._reels = tuple(reels(events))
        self._due = _due_times(events)
        self._next = 0
        self._played_s = 0.0
        self._last: float | None = None

    @property
    def first_run_s(self) -> float:
        """Wall time of the first run."""
        return self._seconds(self._reels[0])

    @property
    def number(self) -> int:
        """Which run is shown, from 0."""
        return self._number - 1

    def texts(self, method: str) -> list[str]:
        """What a method wrote in each run; cleaned."""
        return [
            clean("".join(_text(self._events[place]) for place in reel.rounds.get(method, ()))) for reel in self._reels
        ]

    def length(self, method: str) -> tuple[int, float]:
        """Rounds of a method in the present run, and their decode time in seconds."""
        rounds = self._reel.rounds.get(method, ())
        last = self._events[rounds[-1]] if rounds else None
        return len(rounds), last.t if isinstance(last, Round) else 0.0

    def reached(self, method: str) -> int:
        """How many of these rounds have been shown."""
        return bisect_left(self._reel.rounds.get(method, ()), self._next)

    @property
    def played_s(self) -> tuple[float, float]:
        """How much of the present run has been played, and how much there is, in seconds of the show at speed 1."""
        whole = self._seconds(self._reel)
        return min(max(0.0, self._played_s - self._due[self._reel.begin]), whole), whole

    def start(self) -> None:
        """Nothing: `advance` does the work."""

    def advance(self, now: float) -> None:
        """Appends what the show has reached at `now`."""
        passed = 0.0 if self._last is None else now - self._last
        self._last = now
        if not self.paused:
            self.play(passed * self.speed)

    def play(self, seconds: float) -> None:
        """Appends what the next `seconds` of the recording hold."""
        self._played_s += seconds
        while self._next < len(self._events) and self._due[self._next] <= self._played_s:
            self._append()

    def seek(self, seconds: float) -> None:
        """Goes to a time within the present run, forward or back, and plays on from there."""
        reel = self._reel
        target_s = self._due[reel.begin] + min(max(0.0, seconds), self._seconds(reel))
        if self._next > reel.begin and self._due[self._next - 1] > target_s:
            self._next = reel.begin
        self._played_s = target_s
        self.play(0.0)

    def seek_round(self, method: str, rounds: int) -> None:
        """Goes to the place in the present run after so many rounds of a method; 0 is its beginning."""
        places = self._reel.rounds.get(method, ())
        if rounds > 0 and places:
            self._show_until(places[min(rounds, len(places)) - 1] + 1)
        else:
            self.seek(0.0)

    def step(self, method: str, rounds: int = 1) -> None:
        """Goes some rounds of a method on, or back when negative; after the last to the end of the run.

        From the end of a run, a step leads to the first round of the next one.
        """
        reel, target = self._reel, self.reached(method) + rounds
        if rounds < 0 or target <= self.length(method)[0]:
            self.seek_round(method, target)
        elif self._next < reel.end:
            self._show_until(reel.end)
        elif self._number < len(self._reels):
            following = self._reels[self._number]
            first = following.rounds.get(method, ())
            self._show_until(first[0] + 1 if first else following.end)

    def set_speed(self, speed: float) -> None:
        """Changes the speed of the show."""
        self.speed = bounded_speed(speed)

    def set_paused(self, *, paused: bool) -> None:
        """Holds the show, or goes on."""
        self.paused = paused

    def go(self, step: int) -> None:
        """Jumps to the beginning of another run, round and round."""
        self._next = self._reels[(self._number - 1 + step) % len(self._reels)].begin
        self._played_s = self._due[self._next]
        self.play(0.0)

    def stop(self) -> None:
        """Nothing runs by itself."""

    def close(self, timeout_s: float) -> bool:
        """Nothing to wait for."""
        del timeout_s
        return True

    @property
    def _number(self) -> int:
        """Which run was shown last, counted from 1."""
        return bisect_left(self._reels, self._next, key=lambda reel: reel.end) + 1

    @property
    def _reel(self) -> Reel:
        return self._reels[self._number - 1]

    def _seconds(self, reel: Reel) -> float:
        return self._due[reel.end - 1] - self._due[reel.begin]

    def _show_until(self, place: int) -> None:
        """Appends all events before `place`, once more from the beginning of the run where it lies behind."""
        if place < self._next:
            self._next = self._reel.begin
        while self._next < place:
            self._append()
        self._played_s = self._due[place - 1]

    def _append(self) -> None:
        event = self._events[self._next]
        self._next += 1
        if isinstance(event, Run):
            self.records.append(Prompt(self._number, len(self._reels)))
        self.records.append(event)


def _text(event: Event) -> str:
    return event.text if isinstance(event, Round) else ""


def reels(events: Sequence[Event]) -> Iterator[Reel]:
    """The runs of a recording, which begins with one."""
    begins = [place for place, event in enumerate(events) if isinstance(event, Run)]
    for begin, end in pairwise((*begins, len(events))):
        places = defaultdict[str, list[int]](list)
        for place in range(begin, end):
            event = events[place]
            if isinstance(event, Round):
                places[clean_line(event.method)].append(place)
        yield Reel(begin, end, {method: tuple(found) for method, found in places.items()})


def _due_times(events: Sequence[Event]) -> list[float]:
    """When each event is shown, in seconds since the first: rounds by their wall time, the rest with its neighbour."""
    due, began, latest = list[float](), 0.0, 0.0
    for place, event in enumerate(events):
        if isinstance(event, Run) and place > 0:
            began = latest = latest + REST_S
        if isinstance(event, Round):
            latest = max(latest, began + event.wall_s)
        due.append(latest)
    return due


def _shown_rate(events: Sequence[Event]) -> float:
    """Tokens a second that the watched method put on the screen while it was recorded."""
    rounds = [event for event in events if isinstance(event, Round)]
    watched = [event for event in rounds if event.method == rounds[0].method]
    seconds = sum(max(0.0, b.wall_s - a.wall_s) for a, b in pairwise(watched))
    return sum(len(event.committed) for event in watched) / seconds if seconds > 0 else 0.0
