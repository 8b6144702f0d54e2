"""One method's knobs during a run: the user's turns and history's steps, in force from the next round.

Knows neither models nor trees.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from decoder.events import Knobs
from decoder.knobs import KnobName, TunableParameters
from decoder.session.steering import Turn
from decoder.tree_rules import Rules, TreeRule, adapted, used_depth

NOTED_STEP = 0.01
"""History's tau_h is written as an event when it has moved this far."""

R = TypeVar("R", bound=TunableParameters)


@runtime_checkable
class MovedByHistory(Protocol):
    """Parameters of which history moves two."""

    def moved(self, d0: float, tau_h: float) -> Any:
        """These parameters with other values of the two."""


def applied(rules: R, turns: Iterable[Turn]) -> tuple[R, list[Turn]]:
    """The rules after the turns of their own knobs, and these turns as they came into force."""
    in_force = []
    for turn in turns:
        if rules.has(turn.name):
            old = rules.knob(turn.name)
            rules = rules.turned(turn.name, turn.value)
            in_force.append(replace(turn, value=rules.knob(turn.name), old=old))
    return rules, in_force


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

    def apply(self, turns: tuple[Turn, ...]) -> list[Turn]:
        """Puts the new ones of the user's turns in force, as far as these rules have such knobs, before a round."""
        self.rules, in_force = applied(self.rules, turns[self._turns_seen :])
        self._turns_seen = len(turns)
        self._noted |= {turn.name: turn.value for turn in in_force if turn.name in self._noted}
        return in_force

    def learn(self, depth_acceptance: float) -> list[Turn]:
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
        turns = []
        growth = self.rule.growth
        if used_depth(growth.d0) != used_depth(self._noted["d0"]):
            turns.append(self._note("d0"))
        if abs(growth.tau_h - self._noted["tau_h"]) >= NOTED_STEP:
            turns.append(self._note("tau_h"))
        return turns

    def _note(self, name: KnobName) -> Turn:
        old, value = self._noted[name], self.rules.knob(name)
        self._noted[name] = value
        return Turn(name, value, old=old)
