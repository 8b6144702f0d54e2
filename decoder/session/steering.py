"""What a user may do to a run while it decodes: the one way from the screen's thread to the engine's, which waits here.

The screen writes, the engine reads at the start of a round and wherever it may be held; `stage` goes the other way.
Every slot has one writer and holds one value, so no lock is needed: a wait polls them each 20 ms. Knows no models.
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
"""Work for the time of a wait; returns whether there was any to do."""
NAP_S = 0.02
SLEEP_S = 0.08
"""Shortest sleep: the round after a sleep is slowed by cold caches, so shorter ones would cost more than they wait."""


@dataclass(frozen=True)
class Turn:
    """A knob's new value, by the user or by history."""

    name: KnobName
    value: float
    """As the user asks for it; once it is in force, within the knob's bounds."""
    of: RulesName | None = None
    """The parameter set that the user turns; None: every one that has such a knob."""
    number: int = 0
    """Counts the user's turns of a run, from 1; 0 where history turned the knob."""
    old: float | None = None
    """The value before; None until the turn is in force."""

    def __post_init__(self) -> None:
        require(not math.isnan(self.value), f"{self.name} cannot be turned to what is no number; give a number")


@dataclass(frozen=True)
class Stage:
    """Where the watched method is held within a round."""

    name: StageName
    event: Round
    """What is known so far. drafted: the tree; verified: what was accepted and committed too; committed: all of it, the
    round as it was told."""


class Pause:
    """One stretch of being held, from the user's pause until the run goes on freely."""

    def __init__(self) -> None:
        self.asked = 0
        """Stages that the user has permitted; written by the screen's thread."""
        self.taken = 0
        """Stages of these that the engine has gone to; written by the engine's thread."""

    @property
    def permits(self) -> bool:
        """Whether the engine may go on to another stage."""
        return self.asked > self.taken


class Steering:
    """The slots between the two threads."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self.turns: tuple[Turn, ...] = ()
        """All turns so far in this run, oldest first; every method that they concern applies each once."""
        self.speed = speed
        """1 is as fast as the machine; at 1/2 the engine sleeps as long as it decodes."""
        self.watched: str | None = None
        """The method that is stepped stage by stage; None: the first of the run."""
        self.stopped = False
        """True ends the run after the round in progress."""
        self.pause: Pause | None = None
        """Replaced as a whole, so that permits of an earlier pause are forgotten."""
        self.stage: Stage | None = None
        """Where the engine is held within the watched method's round; None while it runs, and between rounds."""

    @property
    def paused(self) -> bool:
        """True holds the engine where it next may be held, until it is False again."""
        return self.pause is not None

    @paused.setter
    def paused(self, paused: bool) -> None:
        if paused != self.paused:
            self.pause = Pause() if paused else None

    def step(self) -> None:
        """Permits one stage more of the watched method while paused; once that has ended, one round of another."""
        if self.pause:
            self.pause.asked += 1

    def turn(self, name: KnobName, value: float, of: RulesName | None = None) -> Turn:
        """Asks for a knob's new value, from the next round on, in one parameter set or in all that have it.

        The `Knob` events of the methods that obey it name the turn by its number.

        Raises:
            ConfigError: `value` is no number.
        """
        turn = Turn(name, value, of, len(self.turns) + 1)
        self.turns = (*self.turns, turn)
        return turn


def takes_step(steering: Steering) -> bool:
    """Uses up one permitted step of a paused run, if there is one; returns whether the run is to be held here."""
    pause = steering.pause
    if pause is None:
        return False
    if pause.permits:
        pause.taken += 1
    return not pause.permits


def hold(steering: Steering, stage: Stage | None = None, idle: Idle = lambda: False) -> None:
    """Waits while the run is paused and no step is permitted; what is `idle` is done meanwhile."""
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
    """Sleeps as long as the chosen speed asks for, after a few rounds at once.

    A round after a sleep takes several times as long as one that follows another, since threads and caches have gone
    cold. So it sleeps seldom, though often enough for a smooth picture.
    """

    def __init__(self, steering: Steering) -> None:
        self._steering = steering
        self._decoded_s = 0.0
        """Decoding since the last sleep."""

    def after(self, decoded_s: float, idle: Idle = lambda: False) -> None:
        """Sleeps, if it is time to, after `decoded_s` of decoding, unless the speed changes or a pause comes.

        What is `idle` is done instead of sleeping.
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
