"""Steering of a run while it decodes (knobs, pause, single steps, speed, stop), shared by two threads, and one
method's knobs during the run. This module is independent of models and trees.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from decoder.errors import require
from decoder.events import Knobs, Round
from decoder.knobs import KnobName, RulesName, TunableParameters
from decoder.tree_rules import Rules, TreeRule, adapted, used_depth

StageName = Literal["drafted", "verified", "committed"]
Idle = Callable[[], bool]
"""Does work in idle time; returns whether there was work to do."""
NAP_S = 0.02
SLEEP_S = 0.08
"""Shortest sleep: after any sleep, cold caches delay the next round, and the delay would exceed a shorter sleep."""


@dataclass(frozen=True)
class Turn:
    name: KnobName
    value: float
    """New value; a value from the user is clamped to the knob's bounds when it is applied."""
    rules_name: RulesName | None = None
    """Parameter set whose knob changes; None for all parameter sets with a knob of this name."""
    number: int = 0
    """Serial number of the user's change, counted from 1 in each run; 0 for a change by the history rule."""
    old: float | None = None
    """The previous value; None until the change is applied."""

    def __post_init__(self) -> None:
        require(not math.isnan(self.value), f"{self.name} cannot be set to NaN; give a number")


@dataclass(frozen=True)
class Stage:
    """Stage of a round at which the watched method is paused."""

    name: StageName
    event: Round
    """The round so far: at "drafted" with the tree, at "verified" also with accepted nodes and committed tokens, at
    "committed" with all fields.
    """


class Pause:
    def __init__(self) -> None:
        self.steps_requested = 0
        """Stages that the user has requested by single steps; written by the screen's thread."""
        self.steps_taken = 0
        """Requested stages that the engine has entered; written by the engine's thread."""

    @property
    def permits(self) -> bool:
        return self.steps_requested > self.steps_taken


class Steering:
    """State shared by the screen's thread and the engine's thread; see the module's docstring."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self.turns: tuple[Turn, ...] = ()
        """All knob changes by the user in this run, oldest first. Each method that has the knob applies a change once.
        """
        self.speed = speed
        """Speed of the run, where 1 is full speed; at 1/2 the engine sleeps as long as it decodes."""
        self.watched: str | None = None
        """Name of the method through which the user steps stage by stage; None stands for the run's first method."""
        self.stopped = False
        self.pause: Pause | None = None
        """Each pause is a new object, so that steps in an earlier pause do not count."""
        self.preparing = ""
        """Progress of the work before a method's first round and in idle time, in words; empty without such work."""
        self.stage: Stage | None = None
        """Stage at which the watched method is paused within a round, else None."""

    @property
    def paused(self) -> bool:
        return self.pause is not None

    @paused.setter
    def paused(self, paused: bool) -> None:
        if paused != self.paused:
            self.pause = Pause() if paused else None

    def step(self) -> None:
        """While paused, lets the watched method run one more stage. If the watched method's text has ended, lets
        another method decode one round.
        """
        if self.pause:
            self.pause.steps_requested += 1

    def turn(self, name: KnobName, value: float, of: RulesName | None = None) -> Turn:
        """Sets a knob to a new value in one parameter set, or in all parameter sets with this knob. The new value takes
        effect in the next round.

        The `Knob` events for this change carry its serial number.

        Raises:
            ConfigError: `value` is NaN.
        """
        turn = Turn(name, value, of, len(self.turns) + 1)
        self.turns = (*self.turns, turn)
        return turn


def takes_step(steering: Steering) -> bool:
    """Uses up a requested step, if there is one; returns whether the run must pause here."""
    pause = steering.pause
    if pause is None:
        return False
    if pause.permits:
        pause.steps_taken += 1
    return not pause.permits


def hold(steering: Steering, stage: Stage | None = None, idle: Idle = lambda: False) -> None:
    """Waits while the run is paused and the user does not step; meanwhile calls `idle`."""
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

    The round after a sleep takes several times as long as other rounds, since threads must wake up and caches are cold.
    So sleeps are rare, but frequent enough for a smooth display.
    """

    def __init__(self, steering: Steering) -> None:
        self._steering = steering
        self._decoded_s = 0.0

    def after(self, decoded_s: float, idle: Idle = lambda: False) -> None:
        """Called after `decoded_s` more seconds of decoding; sleeps once at least `SLEEP_S` of sleep is due. A pause or
        a stop ends the sleep. While `idle` has work to do, this work replaces the sleep.
        """
        steering = self._steering
        self._decoded_s += decoded_s
        if self._sleep_due_s < SLEEP_S:
            return
        began = time.perf_counter()
        while not (steering.stopped or steering.paused):
            left = self._sleep_due_s - (time.perf_counter() - began)
            if left <= 0:
                break
            if not idle():
                time.sleep(min(left, NAP_S))
        self._decoded_s = 0.0

    @property
    def _sleep_due_s(self) -> float:
        return self._decoded_s * (1 / min(1.0, self._steering.speed) - 1)


NOTED_STEP = 0.01
"""The history rule reports tau_h as an event once it differs by this much from the last reported value."""

R = TypeVar("R", bound=TunableParameters)


@runtime_checkable
class MovedByHistory(Protocol):
    """Parameters whose d0 and tau_h the history rule adjusts."""

    def moved(self, d0: float, tau_h: float) -> Any:
        """A copy of these parameters with these values of d0 and tau_h."""


def applied(rules: R, turns: Iterable[Turn]) -> tuple[R, list[Turn]]:
    """The rules after the user's knob changes `turns`, and the applied changes, with values clamped to the knobs'
    bounds. Changes of knobs that these rules do not have are left out.
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
        """Unrounded current values of the adaptive knobs; None if the rules have none."""
        growth = self.rule.growth
        return Knobs(growth.tau_h, growth.tau_l, growth.d0) if self._noted else None

    def apply(self, turns: tuple[Turn, ...]) -> list[Turn]:
        """Called before a round: applies the user's knob changes since the last call; returns the applied changes."""
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
