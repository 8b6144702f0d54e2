"""One method's knobs during a run: the user's turns and history's steps, in force from the next round.

Knows neither models nor trees.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from decoder.events import Knobs
from decoder.knobs import KnobName
from decoder.session.steering import Turn
from decoder.tree_rules import Rules, TreeRule, adapted, used_depth

NOTED_STEP = 0.01
"""History's tau_h is written as an event when it has moved this far."""


@runtime_checkable
class MovedByHistory(Protocol):
    """Parameters of which history moves two."""

    def moved(self, d0: float, tau_h: float) -> Any:
        """These parameters with other values of the two."""


@dataclass(frozen=True)
class Turned:
    """A knob that has a new value."""

    name: KnobName
    old: float
    new: float
    by_user: bool


class KnobState:
    """The rules in force, and what changed them."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._rule = rules, rules.rule()
        self._turns_seen = 0
        self._depth_acceptances: list[float] = []
        self._noted: dict[KnobName, float] = {}
        """The knobs that history moves, as events report them."""
        if isinstance(rules, MovedByHistory):
            growth = rules.rule().growth
            self._noted = {"d0": growth.d0, "tau_h": growth.tau_h}

    @property
    def rule(self) -> TreeRule:
        """How trees grow under the values in force."""
        if self._rule[0] is not self.rules:
            self._rule = self.rules, self.rules.rule()
        return self._rule[1]

    @property
    def adaptive(self) -> Knobs | None:
        """The exact values in force, for an adaptive tree."""
        growth = self.rule.growth
        return Knobs(growth.tau_h, growth.tau_l, growth.d0) if self._noted else None

    def apply(self, turns: tuple[Turn, ...]) -> list[Turned]:
        """Takes over the user's turns that are new, as far as these rules have such knobs; called before a round."""
        changes = []
        for turn in turns[self._turns_seen :]:
            if self.rules.has(turn.name):
                old = self.rules.knob(turn.name)
                self.rules = self.rules.turned(turn.name, turn.value)
                changes.append(Turned(turn.name, old, self.rules.knob(turn.name), by_user=True))
        self._turns_seen = len(turns)
        self._noted |= {change.name: change.new for change in changes if change.name in self._noted}
        return changes

    def learn(self, depth_acceptance: float) -> list[Turned]:
        """Lets history act on an adaptive tree's rules after a round that drafted; returns what is worth an event.

        A round without a draft says nothing about what would have been accepted.
        """
        if not isinstance(self.rules, MovedByHistory):
            return []
        history = self.rule.history
        self._depth_acceptances.append(depth_acceptance)
        latest = self._depth_acceptances[-int(history.window) :]
        if not history.enabled or len(latest) < history.window:
            return []
        self.rules = self.rules.moved(*adapted(self.rule.growth, history, math.fsum(latest) / history.window))
        changes = []
        growth = self.rule.growth
        if used_depth(growth.d0) != used_depth(self._noted["d0"]):
            changes.append(self._note("d0"))
        if abs(growth.tau_h - self._noted["tau_h"]) >= NOTED_STEP:
            changes.append(self._note("tau_h"))
        return changes

    def _note(self, name: KnobName) -> Turned:
        old, new = self._noted[name], self.rules.knob(name)
        self._noted[name] = new
        return Turned(name, old, new, by_user=False)
