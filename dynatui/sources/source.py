"""The protocol of the sources of records, and the initial playback speed.

A source appends records to one list. The screen keeps its own position in the list and drops only records that it has
read, so no record is lost, and neither source nor screen waits. Commands go from the screen to the source.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from decoder.errors import DecoderError
from decoder.events import Event
from decoder.knobs import KnobName, RulesName
from decoder.run.config import RunConfig
from decoder.session.steering import Stage, Turn
from dynatui.session import Session
from dynatui.sources.breakpoints import Conditions
from dynatui.state.run_state import Record

SHOWN_PER_SECOND = 15.0
"""Tokens per second at which a user can read the text and follow the effect of the history rule."""
REST_S = 4.0
"""Seconds for which a finished prompt stays on the screen."""
SLOWEST, FASTEST = 0.001, 1000.0
"""Bounds of the playback speed."""
_SLOWEST_TEXT = 1 / 64
"""Lower bound of the speed that is chosen so that a text can be read."""


class KnobControls(Protocol):
    """The knobs of an engine."""

    config: RunConfig
    """The parameters with which the next prompt begins; they include all turns of knobs."""

    def turn(self, name: KnobName, value: float, rules_name: RulesName) -> Turn:
        """Turns a knob of a parameter set for this prompt and all later prompts; returns the turn with its number."""


class Controls(KnobControls, Protocol):
    """Controls of an engine."""

    session: Session
    """Settings of the program, including edited prompts."""
    broke: str
    """The break condition that paused decoding, in words; empty if no condition has paused decoding."""
    conditions: Conditions
    """The break conditions."""

    @property
    def prompt(self) -> str:
        """The prompt in progress."""

    @property
    def stage(self) -> Stage | None:
        """The stage of the round at which decoding is paused; None while decoding runs."""

    @property
    def preparing(self) -> str:
        """Progress of the engine's work in idle time, in words; empty if there is no such work."""

    def watch(self, method: str) -> None:
        """Chooses the method to which steps and break conditions apply."""

    def step(self) -> None:
        """Permits the watched method's next stage while decoding is paused."""

    def break_on(self, conditions: Conditions) -> None:
        """Sets the break conditions."""

    def edit(self, prompt: str) -> None:
        """Replaces the prompt in progress, and begins the new prompt."""

    def record(self, path: Path | None) -> None:
        """Records this run and later runs to a file; None ends the recording.

        Raises:
            RecordingError: The file cannot be written.
        """


class Playback(Protocol):
    """Controls of the playback of a recording."""

    number: int
    """Index of the shown run."""
    count: int
    """Number of runs."""

    @property
    def events(self) -> Sequence[Event]:
        """All events of the shown run, played or not."""

    def opening(self, number: int) -> str:
        """The beginning of a run's prompt, without control characters; empty if the run cannot be read."""

    def text(self, method: str, number: int) -> str:
        """The text of a method in a run, without control characters; raises a RecordingError if the run is invalid."""

    def length(self, method: str) -> tuple[int, float]:
        """Number of rounds of a method in the present run, and their decode time in seconds."""

    def seek_round(self, method: str, rounds: int) -> None:
        """Moves to the end of a method's first `rounds` rounds; to move back, appends the run again from the start."""


class Source(Protocol):
    """A source of records: an engine, a recording, or a growing recording."""

    records: list[Record]

    @property
    def controls(self) -> Controls | None:
        """The engine's controls; None for a recording."""

    @property
    def playback(self) -> Playback | None:
        """The controls of a recording; None for an engine and a growing recording."""

    @property
    def speed(self) -> float:
        """Playback speed; 1 is the speed of the machine or of the recorded run."""

    @property
    def paused(self) -> bool:
        """Whether the source is paused, so that no new records are appended."""

    @property
    def recorded(self) -> Path | None:
        """The file that events are written to; None while nothing is recorded."""

    @property
    def lost(self) -> DecoderError | None:
        """Why a recording was not kept, such as a full disk; None if all were."""

    def start(self) -> None:
        """Starts decoding or reading."""

    def advance(self, now: float) -> None:
        """Appends the records due at `now` (seconds), for a source without a thread."""

    def set_speed(self, speed: float) -> None:
        """Changes the playback speed."""

    def set_paused(self, *, paused: bool) -> None:
        """Pauses or resumes decoding or playback."""

    def go(self, step: int) -> None:
        """Begins the prompt `step` places further; 0 begins the present prompt again."""

    def stop(self) -> None:
        """Asks the source to end."""

    def close(self, timeout_s: float) -> bool:
        """Closes the recording, then waits for the source to end; returns whether it has ended."""


def bounded_speed(speed: float) -> float:
    """The nearest playback speed within the bounds."""
    return min(FASTEST, max(SLOWEST, speed))


def readable_speed(tokens_per_second: float) -> float:
    """The readable playback speed: the highest power of two, at most 1, at which the text can be read."""
    speed = 1.0
    while speed > _SLOWEST_TEXT and tokens_per_second * speed > SHOWN_PER_SECOND * 4 / 3:
        speed /= 2
    return speed
