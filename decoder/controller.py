"""One method's knobs during a run: the user's turns and history's steps, in force from the next round.

Knows neither models nor trees.
"""

from dataclasses import dataclass

from decoder.config import DynaTree, KnobName
from decoder.events import Knobs
from decoder.policy import adapted, used_depth
from decoder.steering import Turn

NOTED_STEP = 0.01
"""History's tau_h is written as an event when it has moved this far."""


@dataclass(frozen=True)
class Turned:
    """A knob that has a new value."""

    name: KnobName
    old: float
    new: float
    by_user: bool


class Controller:
    """The rules in force, and what changed them."""

    def __init__(self, rules: DynaTree) -> None:
        self.rules = rules
        self._turns_seen = 0
        self._depth_acceptances: list[float] = []
        self._noted = rules
        """The rules as events have told them."""

    @property
    def knobs(self) -> Knobs:
        """The exact values in force."""
        return Knobs(self.rules.tau_h, self.rules.tau_l, self.rules.d0)

    def apply(self, turns: tuple[Turn, ...]) -> list[Turned]:
        """Takes over the user's turns that are new; called before a round."""
        changes = []
        for turn in turns[self._turns_seen :]:
            before = self.rules
            self.rules = before.turned(turn.name, turn.value)
            self._noted = self._noted.turned(turn.name, turn.value) if turn.name != "history" else self._noted
            changes.append(Turned(turn.name, before.knob(turn.name), self.rules.knob(turn.name), by_user=True))
        self._turns_seen = len(turns)
        return changes

    def learn(self, depth_acceptance: float) -> list[Turned]:
        """Lets history act; called after a round. Returns what is worth an event."""
        self._depth_acceptances.append(depth_acceptance)
        self.rules = adapted(self.rules, self._depth_acceptances)
        changes = []
        if used_depth(self.rules.d0) != used_depth(self._noted.d0):
            changes.append(self._note("d0"))
        if abs(self.rules.tau_h - self._noted.tau_h) >= NOTED_STEP:
            changes.append(self._note("tau_h"))
        return changes

    def _note(self, name: KnobName) -> Turned:
        old, new = self._noted.knob(name), self.rules.knob(name)
        self._noted = self._noted.turned(name, new)
        return Turned(name, old, new, by_user=False)
