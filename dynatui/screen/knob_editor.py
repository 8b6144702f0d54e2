"""Turning knobs: what the user turned, what is not in force yet, and undo; knows neither keys nor widgets.

Turns act on the parameter set of the watched method; before the models are loaded, on that of the first. A value starts
from what is in force, which history may have moved. Temperature and top-p are turned for all methods, whichever
is watched.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from decoder.errors import ConfigError
from decoder.events import Knob, Run
from decoder.knobs import KnobName, RulesName, TunableParameters
from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.knobs import owner, rules_of
from dynatui.sources.source import KnobControls
from dynatui.state.run_state import Record, RunState

MOVED: tuple[KnobName, ...] = ("d0", "tau_h")


@dataclass(frozen=True)
class Step:
    """The turns of one key press, and the values that undo them."""

    of: RulesName
    """Whose knobs were turned; beside them, those that all methods share."""
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
        self._sampled: dict[str, Sampling] = {}
        """How each method of the run chooses its tokens now; turns cannot be counted, for several may come into force
        as one."""
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
            began = Sampling(record.temperature, record.top_k, record.top_p)
            self._sampled = dict.fromkeys(record.methods, began)
        elif isinstance(record, Knob) and Sampling().has(record.name):
            self._sampled[record.method] = self._sampled[record.method].with_knobs({record.name: record.new})
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

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen that no method has come to yet."""
        return self._controls.config.sampling

    def wanted(self, state: RunState) -> Mapping[KnobName, float]:
        """Knobs of the watched method that were turned and are not in force yet."""
        method, latest = self.watched(state), self.sampling
        of, now = rules_of(method), self._sampled.get(method, latest)
        ahead = {name: latest.knob(name) for name in latest.ends() if latest.knob(name) != now.knob(name)}
        return (dict(self._wanted.get(of, {})) if of else {}) | ahead

    def rules(self, state: RunState) -> TunableParameters | None:
        """The watched method's rules as they are about to be in force."""
        of = self.of(state)
        return self._rules(of, state) if of else None

    def move(self, name: KnobName, distance: float, state: RunState) -> bool:
        """Turns a knob from where it is, or from where it is about to be; whether it had another value."""
        of = owner(name, self.of(state))
        rules = self._rules(of, state) if of else None
        if rules is None or not rules.has(name):
            return False
        return self.set({name: rules.knob(name) + distance}, state)

    def set(self, values: Mapping[KnobName, float], state: RunState) -> bool:
        """Turns knobs of one parameter set to these values, or the nearest of their grids and bounds, as one step.

        Returns whether any had another value.
        """
        of = owner(next(iter(values)), self.of(state))
        return of is not None and self._step(of, [(self._settled(of, values, state), False)], state)

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
            self._step(of, [({"history": 0.0}, False), (self._settled(of, held, state), True)], state)

    def undo(self, state: RunState) -> Step | None:
        """Takes back what the last key turned; None where there is nothing."""
        if not self._steps:
            return None
        step = self._steps.pop()
        # Rounds may have moved them since the state was drawn.
        moved = MOVED if ("history", 0.0) in step.before else ()
        for name, before in reversed(step.before):
            of = owner(name, step.of)
            if name in moved or self._rules(of, state).knob(name) != before:
                self._turn(of, name, before)
        return step

    def defaults(self, state: RunState) -> bool:
        """Turns everything of the watched method, and what it shares, back to what the program was started with."""
        of = self.of(state) or SAMPLING
        return self._turn_to(of, (self._first.rules(of), self._first.sampling), state)

    def next_preset(self, state: RunState) -> str | None:
        """Turns all knobs to those of the next preset; its name, or None where the watched method has no presets."""
        of = self.of(state)
        if of is None or not METHODS[of].presets:
            return None
        presets = list(METHODS[of].presets.items())
        self._presets[of] = (self._presets[of] + 1) % len(presets)
        name, rules = presets[self._presets[of]]
        self._turn_to(of, (rules,), state)
        return name

    def _rules(self, of: RulesName, state: RunState) -> TunableParameters:
        rules = self._controls.config.rules(of)
        lane = state.lane if rules_of(state.watched) == of else state.lanes.get(of)
        if isinstance(rules, AdaptiveTree) and lane is not None and lane.knobs is not None:
            knobs = lane.knobs
            with suppress(ConfigError):  # a round under knobs that a turn has made impossible since
                rules = replace(rules, tau_h=knobs.tau_h, tau_l=knobs.tau_l, d0=knobs.d0)
        for name, value in self._wanted.get(of, {}).items():
            rules = rules.turned(name, value)
        return rules

    def _turn_to(self, of: RulesName, sets: Sequence[TunableParameters], state: RunState) -> bool:
        """Twice over, since a knob may stand in the way of one that comes before it."""
        values = {name: rules.knob(name) for rules in sets for name in rules.ends()}
        return self._step(of, [(values, False), (values, False)], state)

    def _step(self, of: RulesName, turns: Sequence[tuple[Mapping[KnobName, float], bool]], state: RunState) -> bool:
        """Turns knobs to values in this order, those of a group that says so even where they have them already."""
        before: list[tuple[KnobName, float]] = []
        for values, always in turns:
            for name, value in values.items():
                rules = self._rules(owner(name, of), state)
                old, new = rules.knob(name), rules.turned(name, value).knob(name)
                if name == "history" and new > old:
                    before += [(moved, self._told(of, moved, rules)) for moved in MOVED]
                if always or old != new:
                    before.append((name, self._told(owner(name, of), name, rules)))
                    self._turn(owner(name, of), name, new)
        if before:
            self._steps.append(Step(of, tuple(before)))
        return bool(before)

    def _settled(self, of: RulesName, values: Mapping[KnobName, float], state: RunState) -> dict[KnobName, float]:
        return {name: self._rules(owner(name, of), state).settled(name, value) for name, value in values.items()}

    def _told(self, of: RulesName, name: KnobName, rules: TunableParameters) -> float:
        """A knob's value as it was given, or on its grid where history moved it."""
        value = rules.knob(name)
        given = value == self._controls.config.rules(of).knob(name)
        return value if given else rules.settled(name, value)

    def _turn(self, of: RulesName, name: KnobName, value: float) -> None:
        self._wanted.setdefault(of, {})[name] = value
        self._sent[of, name] += 1
        self._controls.turn(name, value, of)
