"""What a user may do to a run while it decodes: the one way from the screen's thread to the engine's.

The screen writes, the engine reads at the start of a round and wherever it may be held; `stage` goes the other way.
Every slot has one writer and holds one value, so no lock is needed.
"""

import math
from dataclasses import dataclass
from typing import Literal

from decoder.errors import require
from decoder.events import Round
from decoder.knobs import KnobName

StageName = Literal["drafted", "verified", "committed"]


@dataclass(frozen=True)
class Turn:
    """A knob that the user turned."""

    name: KnobName
    value: float
    of: str | None = None
    """The parameter set that it belongs to; None: every one that has such a knob."""

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

    def turn(self, name: KnobName, value: float, of: str | None = None) -> None:
        """Asks for a knob's new value, from the next round on, in one parameter set or in all that have it.

        Raises:
            ConfigError: `value` is no number.
        """
        self.turns = (*self.turns, Turn(name, value, of))
