"""What a user may do to a run while it decodes: the one way from the screen's thread to the engine's.

The screen writes, the engine reads at the start of a round. Every field holds an immutable value, so no lock is needed.
"""

from dataclasses import dataclass

from decoder.config import KnobName


@dataclass(frozen=True)
class Turn:
    """A knob that the user turned."""

    name: KnobName
    value: float


class Steering:
    """The slots between the two threads."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self.turns: tuple[Turn, ...] = ()
        """All turns so far in this run, oldest first; every method with knobs applies each once."""
        self.speed = speed
        """1 is as fast as the machine; at 1/2 the engine sleeps as long as it decodes."""
        self.paused = False
        self.stopped = False
        """True ends the run after the round in progress."""

    def turn(self, name: KnobName, value: float) -> None:
        """Asks for a knob's new value, from the next round on."""
        self.turns = (*self.turns, Turn(name, value))
