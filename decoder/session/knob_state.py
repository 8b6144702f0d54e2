"""One method's knobs during a run. A change by the user or by the history rule takes effect in the next round.

This module knows neither models nor trees.
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
"""Smallest change of tau_h by the history rule that is reported as an event."""

R = TypeVar("R", bound=TunableParameters)


@runtime_checkable
class MovedByHistory(Protocol):
    """Parameters whose d0 and tau_h the history rule adjusts."""

    def moved(self, d0: float, tau_h: float) -> Any:
        """A copy of these parameters with these values of d0 and tau_h."""


def applied(rules: R, turns: Iterable[Turn]) -> tuple[R, list[Turn]]:
    """The rules after the user's `turns`, and those that were applied, with values clamped to the knobs' bounds.
    Changes of knobs that these rules do not have are left out.
    """
    in_force = []
    for turn in turns:
        if rules.has(turn.name):
            old = rules.knob(turn.name)
            rules = rules.turned(turn.name, turn.value)
            in_force.append(replace(turn, value=rules.knob(turn.name), old=old))
    return rules, in_force


class KnobState:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._rule = rules, rules.rule()
        self._turns_seen = 0
        self._depth_acceptances: list[float] = []
        self._noted: dict[KnobName, float] = {}
        """Last reported values of the knobs that the history rule adjusts; empty without a history rule."""
        if isinstance(rules, MovedByHistory):
            growth = rules.rule().growth
            self._noted = {"d0": growth.d0, "tau_h": growth.tau_h}

    @property
    def rule(self) -> TreeRule:
        if self._rule[0] is not self.rules:
            self._rule = self.rules, self.rules.rule()
        return self._rule[1]

    @property
    def adaptive(self) -> Knobs | None:
        """Exact current values; None if the rules have no adaptive knobs."""
        growth = self.rule.growth
        return Knobs(growth.tau_h, growth.tau_l, growth.d0) if self._noted else None

    def apply(self, turns: tuple[Turn, ...]) -> list[Turn]:
        """Before a round, applies the user's changes since the last call that concern these rules."""
        self.rules, in_force = applied(self.rules, turns[self._turns_seen :])
        self._turns_seen = len(turns)
        self._noted |= {turn.name: turn.value for turn in in_force if turn.name in self._noted}
        return in_force

    def learn(self, depth_acceptance: float) -> list[Turn]:
        """Applies the history rule after a round with a draft; returns the knob changes that events report."""
        self._depth_acceptances.append(depth_acceptance)
        history, rules = self.rule.history, self.rules
        latest = self._depth_acceptances[-int(history.window) :]
        if not history.enabled or len(latest) < history.window or not isinstance(rules, MovedByHistory):
            return []
        self.rules = rules.moved(*adapted(self.rule.growth, history, math.fsum(latest) / history.window))
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
