"""Steering of a run while it decodes: knobs, pause, single steps, speed and stop, shared by two threads.

The screen's thread writes; the engine's thread reads at the start of a round and at each point where it may pause.
`stage` is written by the engine and read by the screen. Each attribute has one writer and one value, so no lock is
needed: a wait polls them each 20 ms. Knows no models.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from decoder.errors import require
from decoder.events import Round
from decoder.knobs import KnobName, RulesName

StageName = Literal["drafted", "verified", "committed"]
Idle = Callable[[], bool]
"""Work for idle time during a wait; returns whether there was any."""
NAP_S = 0.02
SLEEP_S = 0.08
"""Shortest sleep, in seconds: cold caches slow the round after a sleep, by more than a shorter sleep would last."""


@dataclass(frozen=True)
class Turn:
    """A knob's new value, by the user or by history."""

    name: KnobName
    value: float
    """The user's value; in force, the nearest value within the knob's bounds."""
    of: RulesName | None = None
    """Parameter set of the knob; None: every set with a knob of this name."""
    number: int = 0
    """Serial number of the user's turn in its run, from 1; 0 for a turn by history."""
    old: float | None = None
    """The value before; None until the turn is in force."""

    def __post_init__(self) -> None:
        require(not math.isnan(self.value), f"{self.name} cannot be turned to what is no number; give a number")


@dataclass(frozen=True)
class Stage:
    """Stage of a round at which the watched method is paused."""

    name: StageName
    event: Round
    """The round so far. drafted: the tree; verified: accepted nodes and committed tokens too; committed: all fields, as
    in the event of the round."""


class Pause:
    """One pause, from the user's pause until the run continues freely."""

    def __init__(self) -> None:
        self.asked = 0
        """Number of stages that the user has permitted; written by the screen's thread."""
        self.taken = 0
        """Number of permitted stages that the engine has entered; written by the engine's thread."""

    @property
    def permits(self) -> bool:
        """Whether the engine may enter another stage."""
        return self.asked > self.taken


class Steering:
    """State shared by the screen's thread and the engine's; see the module."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self.turns: tuple[Turn, ...] = ()
        """All turns so far in this run, oldest first; each method with that knob applies each turn once."""
        self.speed = speed
        """Speed as a share of the machine's: 1 is full speed; at 1/2 the engine sleeps as long as it decodes."""
        self.watched: str | None = None
        """The method that is stepped stage by stage; None: the first of the run."""
        self.stopped = False
        """True ends the run after the round in progress."""
        self.pause: Pause | None = None
        """The present pause, or None; a new object for each pause, so that permits of an earlier one do not count."""
        self.stage: Stage | None = None
        """Stage at which the watched method is paused within a round; None while it runs, and between rounds."""

    @property
    def paused(self) -> bool:
        """Whether the run is paused; the engine stops at the next stage until it is False."""
        return self.pause is not None

    @paused.setter
    def paused(self, paused: bool) -> None:
        if paused != self.paused:
            self.pause = Pause() if paused else None

    def step(self) -> None:
        """Permits one more stage of the watched method while paused; after its end, one round of another method."""
        if self.pause:
            self.pause.asked += 1

    def turn(self, name: KnobName, value: float, of: RulesName | None = None) -> Turn:
        """Sets a knob to a new value from the next round on, in one parameter set or in all that have the knob.

        The `Knob` events of this turn carry its number.

        Raises:
            ConfigError: `value` is no number.
        """
        turn = Turn(name, value, of, len(self.turns) + 1)
        self.turns = (*self.turns, turn)
        return turn


def takes_step(steering: Steering) -> bool:
    """Takes one permitted step of a paused run, if any; returns whether the run must pause at this stage."""
    pause = steering.pause
    if pause is None:
        return False
    if pause.permits:
        pause.taken += 1
    return not pause.permits


def hold(steering: Steering, stage: Stage | None = None, idle: Idle = lambda: False) -> None:
    """Waits while the run is paused and no step is permitted; does `idle` work meanwhile."""
    pause = steering.pause
    if pause is None:
        return
    steering.stage = stage
    try:
        while steering.pause is pause and not pause.permits and not steering.stopped:
            if not idle():
                time.sleep(NAP_S)
    finally:
        steering.stage = None


class SlowMotion:
    """Slows a run to the chosen speed by sleeping after every few rounds.

    The round after a sleep takes several times as long as other rounds, since threads sleep and caches are cold. So it
    sleeps seldom, though often enough for a smooth picture.
    """

    def __init__(self, steering: Steering) -> None:
        self._steering = steering
        self._decoded_s = 0.0
        """Decode time since the last sleep, in seconds."""

    def after(self, decoded_s: float, idle: Idle = lambda: False) -> None:
        """Sleeps, where due, after `decoded_s` seconds of decoding, until the speed changes or a pause begins.

        Does `idle` work in place of sleeping.
        """
        steering = self._steering
        self._decoded_s += decoded_s
        if self._owed_s < SLEEP_S:
            return
        began = time.perf_counter()
        while not (steering.stopped or steering.paused):
            left = self._owed_s - (time.perf_counter() - began)
            if left <= 0:
                break
            if not idle():
                time.sleep(min(left, NAP_S))
        self._decoded_s = 0.0

    @property
    def _owed_s(self) -> float:
        return self._decoded_s * (1 / min(1.0, self._steering.speed) - 1)
