"""What the screen needs from whatever it watches, and at what speed the show begins.

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
"""How long a finished prompt stays on the screen."""
_SLOWEST = 1 / 64
_FASTEST = 64.0


class KnobControls(Protocol):
    """The knobs of an engine."""

    config: RunConfig
    """The parameters with all turns of the user's, as the next prompt will begin with them."""

    def turn(self, name: KnobName, value: float, of: RulesName) -> Turn:
        """Turns a knob of a parameter set, for this prompt and those that follow; the turn with its number."""


class Controls(KnobControls, Protocol):
    """What a user may do to an engine besides watching it."""

    session: Session
    """What the program was started with; its prompts as they were edited."""
    broke: str
    """Why decoding paused by itself; empty when it did not."""
    conditions: Conditions
    """When it shall."""

    @property
    def prompt(self) -> str:
        """The prompt in progress."""

    @property
    def stage(self) -> Stage | None:
        """Where in a round decoding is held."""

    def watch(self, method: str) -> None:
        """From now on this method is the one that is stepped, and whose rounds may pause decoding."""

    def step(self) -> None:
        """While paused: goes on to the watched method's next stage."""

    def break_on(self, conditions: Conditions) -> None:
        """Pauses by itself from now on when any of these happens."""

    def edit(self, prompt: str) -> None:
        """Replaces the prompt in progress, and begins it."""

    def record(self, path: Path | None) -> None:
        """Writes this run and all that follows to a file, None ends that; raises a RecordingError if it cannot be."""


class Playback(Protocol):
    """What a user may do to a recording besides watching it."""

    number: int
    """Which run is shown, from 0."""
    count: int
    """How many runs there are."""

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
    """What the screen needs from whatever it watches."""

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
        """Whether nothing new comes."""

    @property
    def recorded(self) -> Path | None:
        """The file that events are written to."""

    def start(self) -> None:
        """Begins to append."""

    def advance(self, now: float) -> None:
        """Appends what is due at `now` (seconds), for a source without a thread."""

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
