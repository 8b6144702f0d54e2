"""A recording, shown as if it happened now: takes the engine's place behind the screen.

Knows no models and needs no thread: what is due is appended when the screen asks for it.
"""

from collections.abc import Sequence
from itertools import pairwise

from decoder.config import KnobName
from decoder.events import Event, Round, Run
from dynatui.sources import REST_S, bounded_speed, readable_speed
from dynatui.state import Prompt, Record


class TraceSource:
    """Plays recorded events by the wall time that they carry; needs no models and no thread."""

    def __init__(self, events: Sequence[Event], speed: float | None = None) -> None:
        self.records: list[Record] = []
        self.steerable = False
        self.recording = False
        self.paused = False
        self.speed = bounded_speed(speed or readable_speed(_shown_rate(events)))
        self._runs = [place for place, event in enumerate(events) if isinstance(event, Run)]
        self._events = events
        self._due = _due_times(events)
        self._next = 0
        self._played_s = 0.0
        self._last: float | None = None

    @property
    def first_run_s(self) -> float:
        """Wall time of the first run."""
        return self._due[(*self._runs[1:], len(self._due))[0] - 1] - self._due[0]

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

    def set_speed(self, speed: float) -> None:
        """Changes the speed of the show."""
        self.speed = bounded_speed(speed)

    def set_paused(self, *, paused: bool) -> None:
        """Holds the show, or goes on."""
        self.paused = paused

    def turn(self, name: KnobName, value: float) -> None:
        """Nothing: what was recorded stands."""

    def go(self, step: int) -> None:
        """Jumps to the beginning of another run, round and round."""
        current = sum(place < max(1, self._next) for place in self._runs) - 1
        self._next = self._runs[(current + step) % len(self._runs)]
        self._played_s = self._due[self._next]

    def stop(self) -> None:
        """Nothing runs by itself."""

    def close(self, timeout_s: float) -> bool:
        """Nothing to wait for."""
        del timeout_s
        return True

    def _append(self) -> None:
        event = self._events[self._next]
        if isinstance(event, Run):
            self.records.append(Prompt(self._runs.index(self._next) + 1, len(self._runs)))
        self.records.append(event)
        self._next += 1


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
