"""Turning knobs: what the user turned, what is not in force yet, and undo; knows neither keys nor widgets.

Turns act on the parameter set of the watched method; before the models are loaded, on that of the first. A value starts
from what is in force, which history may have moved.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from decoder.errors import ConfigError
from decoder.events import Knob, Run
from decoder.knobs import KNOB_DIGITS, KnobName, RulesName, Turnable
from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from dynatui.knobs import rules_of
from dynatui.sources.source import KnobControls
from dynatui.state.run_state import Record, RunState

MOVED: tuple[KnobName, ...] = ("d0", "tau_h")


@dataclass(frozen=True)
class Step:
    """The turns of one key press, and the values that undo them."""

    of: RulesName
    before: tuple[tuple[KnobName, float], ...]
    """Knobs in the order in which they were turned, with the value before."""


class KnobEditor:
    """Turns knobs through an engine's controls."""

    def __init__(self, controls: KnobControls) -> None:
        self._controls = controls
        self._first = controls.config
        self._wanted: dict[RulesName, dict[KnobName, float]] = {}
        """Turned, and not in force yet."""
        self._sent: Counter[tuple[RulesName, KnobName]] = Counter()
        """How many turns of each knob this run was asked for."""
        self._applied: Counter[tuple[str, KnobName]] = Counter()
        """How many of these each method has applied."""
        self._steps: list[Step] = []
        self._presets = {
            of: list(METHODS[of].presets.values()).index(rules) if rules in METHODS[of].presets.values() else -1
            for of, rules in controls.config.parameters.items()
            if of in METHODS
        }
        """The preset that each parameter set was turned to last; -1 for none."""

    def take(self, record: Record) -> None:
        """Notes which turns have come into force."""
        if isinstance(record, Run):
            self._wanted.clear()
            self._sent.clear()
            self._applied.clear()
        elif isinstance(record, Knob) and record.source == "user" and (of := rules_of(record.method)):
            self._applied[record.method, record.name] += 1
            if self._applied[record.method, record.name] >= self._sent[of, record.name]:
                self._wanted.get(of, {}).pop(record.name, None)

    def watched(self, state: RunState) -> str:
        """The method whose knobs are turned."""
        return state.watched or self._controls.config.methods[0]

    def of(self, state: RunState) -> RulesName | None:
        """The parameter set that is turned; None where the watched method has no knobs."""
        return rules_of(self.watched(state))

    def wanted(self, state: RunState) -> Mapping[KnobName, float]:
        """Knobs of the watched method that were turned and are not in force yet."""
        of = self.of(state)
        return dict(self._wanted.get(of, {})) if of else {}

    def rules(self, state: RunState) -> Turnable | None:
        """The watched method's rules as they are about to be in force."""
        of = self.of(state)
        return self._rules(of, state) if of else None

    def move(self, name: KnobName, distance: float, state: RunState) -> None:
        """Turns a knob from where it is, or from where it is about to be."""
        rules = self.rules(state)
        if rules is not None and rules.has(name):
            self.set({name: round(rules.knob(name) + distance, KNOB_DIGITS)}, state)

    def set(self, values: Mapping[KnobName, float], state: RunState) -> bool:
        """Turns knobs to these values, or the nearest that bounds allow, as one step; whether any had another value."""
        of = self.of(state)
        return of is not None and self._step(of, [(values, False)], state)

    def history(self, state: RunState) -> None:
        """History on, or off: then what it moves stays where it is."""
        rules = self.rules(state)
        if isinstance(rules, AdaptiveTree) and not rules.history:
            self.set({"history": 1.0}, state)
        else:
            self.hold({}, state)

    def hold(self, values: Mapping[KnobName, float], state: RunState) -> None:
        """History off, and what it moves at these values, or else where it is.

        History may move on before it is off, so the values are set although they are in force now.
        """
        of, rules = self.of(state), self.rules(state)
        if of is not None and isinstance(rules, AdaptiveTree):
            held = {**{name: rules.knob(name) for name in MOVED}, **values}
            self._step(of, [({"history": 0.0}, False), (held, True)], state)

    def undo(self, state: RunState) -> Step | None:
        """Takes back what the last key turned; None where there is nothing."""
        if not self._steps:
            return None
        step = self._steps.pop()
        # Rounds may have moved them since the state was drawn.
        moved = MOVED if ("history", 0.0) in step.before else ()
        for name, before in reversed(step.before):
            if name in moved or self._rules(step.of, state).knob(name) != before:
                self._turn(step.of, name, before)
        return step

    def defaults(self, state: RunState) -> bool:
        """Turns everything of the watched method back to what the program was started with."""
        of = self.of(state)
        return of is not None and self._turn_to(of, self._first.rules(of), state)

    def next_preset(self, state: RunState) -> str | None:
        """Turns all knobs to those of the next preset; its name, or None where the watched method has no presets."""
        of = self.of(state)
        if of is None or not METHODS[of].presets:
            return None
        presets = list(METHODS[of].presets.items())
        self._presets[of] = (self._presets[of] + 1) % len(presets)
        name, rules = presets[self._presets[of]]
        self._turn_to(of, rules, state)
        return name

    def _rules(self, of: RulesName, state: RunState) -> Turnable:
        rules = self._controls.config.rules(of)
        lane = state.lane if rules_of(state.watched) == of else state.lanes.get(of)
        if isinstance(rules, AdaptiveTree) and lane is not None and lane.knobs is not None:
            knobs = lane.knobs
            with suppress(ConfigError):  # a round under knobs that a turn has made impossible since
                rules = replace(rules, tau_h=knobs.tau_h, tau_l=knobs.tau_l, d0=knobs.d0)
        for name, value in self._wanted.get(of, {}).items():
            rules = rules.turned(name, value)
        return rules

    def _turn_to(self, of: RulesName, rules: Turnable, state: RunState) -> bool:
        """Twice over, since a knob may stand in the way of one that comes before it."""
        values = {name: rules.knob(name) for name in rules.ends()}
        return self._step(of, [(values, False), (values, False)], state)

    def _step(self, of: RulesName, turns: Sequence[tuple[Mapping[KnobName, float], bool]], state: RunState) -> bool:
        """Turns knobs to values in this order, those of a group that says so even where they have them already."""
        before: list[tuple[KnobName, float]] = []
        for values, always in turns:
            for name, value in values.items():
                rules = self._rules(of, state)
                old, new = rules.knob(name), rules.turned(name, value).knob(name)
                if name == "history" and new > old:
                    before += [(moved, rules.knob(moved)) for moved in MOVED]
                if always or old != new:
                    before.append((name, old))
                    self._turn(of, name, new)
        if before:
            self._steps.append(Step(of, tuple(before)))
        return bool(before)

    def _turn(self, of: RulesName, name: KnobName, value: float) -> None:
        self._wanted.setdefault(of, {})[name] = value
        self._sent[of, name] += 1
        self._controls.turn(name, value, of)
