"""The protocol of the sources of records, and the initial speed of the show.

A source appends records to one list; the screen reads it behind a cursor of its own and drops only what it has taken
in, so nothing is lost and neither side waits. Commands go the other way.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from decoder.config import RunConfig
from decoder.events import Event
from decoder.knobs import KnobName, RulesName
from decoder.session.steering import Stage, Turn
from dynatui.session import Session
from dynatui.sources.breakpoints import Conditions
from dynatui.state.run_state import Record

SHOWN_PER_SECOND = 15.0
"""Tokens a second at which the text can be read, and history be seen at work."""
REST_S = 4.0
"""Seconds for which a finished prompt stays on the screen."""
_SLOWEST = 1 / 64
_FASTEST = 64.0


class KnobControls(Protocol):
    """The knobs of an engine."""

    config: RunConfig
    """The parameters with all turned knobs, with which the next prompt begins."""

    def turn(self, name: KnobName, value: float, of: RulesName) -> Turn:
        """Turns a knob of a parameter set, for this prompt and those that follow; the turn with its number."""


class Controls(KnobControls, Protocol):
    """Controls of an engine."""

    session: Session
    """The session of the program, with edited prompts."""
    broke: str
    """The condition that paused decoding; empty for none."""
    conditions: Conditions
    """The conditions at which decoding pauses."""

    @property
    def prompt(self) -> str:
        """The prompt in progress."""

    @property
    def stage(self) -> Stage | None:
        """The stage at which decoding is held."""

    def watch(self, method: str) -> None:
        """From now on this method is the one that is stepped, and whose rounds may pause decoding."""

    def step(self) -> None:
        """While paused: goes on to the watched method's next stage."""

    def break_on(self, conditions: Conditions) -> None:
        """Sets the conditions at which decoding pauses."""

    def edit(self, prompt: str) -> None:
        """Replaces the prompt in progress, and begins it."""

    def record(self, path: Path | None) -> None:
        """Writes this run and all that follows to a file, None ends that; raises a RecordingError if it cannot be."""


class Playback(Protocol):
    """Controls of a recording."""

    number: int
    """Index of the shown run."""
    count: int
    """Number of runs."""

    @property
    def events(self) -> Sequence[Event]:
        """All of the run that is shown, played or not."""

    def opening(self, number: int) -> str:
        """How the prompt of a run begins, cleaned; empty where it cannot be read."""

    def text(self, method: str, number: int) -> str:
        """What a method wrote in a run, cleaned; raises a RecordingError if the run cannot be read."""

    def length(self, method: str) -> tuple[int, float]:
        """Rounds of a method in the present run, and their decode time in seconds."""

    def seek_round(self, method: str, rounds: int) -> None:
        """Goes to where a method has so many rounds; backward, the run is appended again from its beginning."""


class Source(Protocol):
    """A source of records: an engine, a recording, or a growing recording."""

    records: list[Record]

    @property
    def controls(self) -> Controls | None:
        """For an engine: the ways to steer it."""

    @property
    def playback(self) -> Playback | None:
        """For a recording: the ways to move in it."""

    @property
    def speed(self) -> float:
        """How fast the show runs; 1 is as fast as the machine, or as it was recorded."""

    @property
    def paused(self) -> bool:
        """Whether no new records are appended."""

    @property
    def recorded(self) -> Path | None:
        """The file that events are written to."""

    def start(self) -> None:
        """Starts the work."""

    def advance(self, now: float) -> None:
        """Appends the records due at `now` (seconds), for a source without a thread."""

    def set_speed(self, speed: float) -> None:
        """Changes the speed of the show."""

    def set_paused(self, *, paused: bool) -> None:
        """Holds or goes on."""

    def go(self, step: int) -> None:
        """Leaves the prompt in progress for the one `step` places further; 0 begins it again."""

    def stop(self) -> None:
        """Asks the work to end soon."""

    def close(self, timeout_s: float) -> bool:
        """Closes the recording, then waits for the end of the work; whether it came."""


def bounded_speed(speed: float) -> float:
    """The nearest speed that the show may run at."""
    return min(_FASTEST, max(_SLOWEST, speed))


def readable_speed(tokens_per_second: float) -> float:
    """The highest power of two, at most 1, at which the text can be followed."""
    speed = 1.0
    while speed > _SLOWEST and tokens_per_second * speed > SHOWN_PER_SECOND * 4 / 3:
        speed /= 2
    return speed
