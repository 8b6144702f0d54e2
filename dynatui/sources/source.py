"""The protocol of the sources of records, and the initial playback speed.

A source appends to one list, and the screen drops only what it has read, so that neither waits. Commands go back.
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
"""Tokens per second at which a user can read the text and follow the history rule."""
REST_S = 4.0
SLOWEST, FASTEST = 0.001, 1000.0
_SLOWEST_TEXT = 1 / 64


class KnobControls(Protocol):
    """The knobs of an engine."""

    config: RunConfig
    """The parameters with which the next prompt begins, with all turns of knobs."""

    def turn(self, name: KnobName, value: float, rules_name: RulesName) -> Turn: ...


class Controls(KnobControls, Protocol):
    """Controls of an engine; steps and break conditions apply to the watched method."""

    session: Session
    """Includes edited prompts."""
    broke: str
    """The break condition that paused decoding, in words; empty if none has."""
    conditions: Conditions

    @property
    def prompt(self) -> str: ...

    @property
    def stage(self) -> Stage | None:
        """The stage of the round at which decoding is paused; None while it runs."""

    @property
    def preparing(self) -> str:
        """Progress of the work in idle time; empty if there is none."""

    def watch(self, method: str) -> None: ...

    def step(self) -> None:
        """Permits the next stage while decoding is paused."""

    def break_on(self, conditions: Conditions) -> None: ...

    def edit(self, prompt: str) -> None:
        """Replaces the prompt in progress, and begins the new prompt."""

    def record(self, path: Path | None) -> None:
        """Records this run and later runs; None ends the recording. Raises RecordingError."""


class Playback(Protocol):
    """Controls of the playback of a recording."""

    number: int
    """Index of the shown run."""
    count: int

    @property
    def events(self) -> Sequence[Event]:
        """All events of the shown run, played or not."""

    def opening(self, number: int) -> str:
        """The beginning of a run's prompt."""

    def text(self, method: str, number: int) -> str: ...

    def length(self, method: str) -> tuple[int, float]: ...

    def seek_round(self, method: str, rounds: int) -> None: ...


class Source(Protocol):
    """A source of records: an engine, a recording, or a growing recording."""

    records: list[Record]

    @property
    def controls(self) -> Controls | None: ...

    @property
    def playback(self) -> Playback | None: ...

    @property
    def speed(self) -> float:
        """1 is the speed of the machine or of the recorded run."""

    @property
    def paused(self) -> bool: ...

    @property
    def recorded(self) -> Path | None:
        """The file that events are written to."""

    @property
    def lost(self) -> DecoderError | None:
        """Why a recording was not kept, such as a full disk."""

    def start(self) -> None: ...

    def advance(self, now: float) -> None:
        """Appends the records due at `now` (seconds), for a source without a thread."""

    def set_speed(self, speed: float) -> None: ...

    def set_paused(self, *, paused: bool) -> None: ...

    def go(self, step: int) -> None:
        """Begins the prompt `step` places further; 0 begins the present prompt again."""

    def stop(self) -> None: ...

    def close(self, timeout_s: float) -> bool:
        """Closes the recording, then waits for the source to end; returns whether it has ended."""


def bounded_speed(speed: float) -> float:
    return min(FASTEST, max(SLOWEST, speed))


def readable_speed(tokens_per_second: float) -> float:
    """The highest power of two, at most 1, at which the text can be read."""
    speed = 1.0
    while speed > _SLOWEST_TEXT and tokens_per_second * speed > SHOWN_PER_SECOND * 4 / 3:
        speed /= 2
    return speed
