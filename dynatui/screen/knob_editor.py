"""Turns of knobs: steps and values, pending turns, and undo; knows neither keys nor widgets.

Turns act on the parameter set of the watched method, or of the first method before the models are loaded. Steps start
from the value in force, which history may have moved. Temperature and top-p are turned for all methods.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from decoder.errors import ConfigError
from decoder.events import Knob, Run
from decoder.knobs import KnobName, RulesName, TunableParameters
from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.session.steering import Turn
from dynatui.knobs import owner, rules_of
from dynatui.sources.source import KnobControls
from dynatui.state.run_state import Record, RunState

MOVED: tuple[KnobName, ...] = ("d0", "tau_h")


class KnobEditor:
    """Turns knobs through an engine's controls."""

    def __init__(self, controls: KnobControls) -> None:
        self._controls = controls
        self._first = controls.config
        self._pending: list[Turn] = []
        """Turns of the methods' knobs in this run that are not in force yet."""
        self._undoing: list[list[Turn]] = []
        """Undo stack: for each key press, the turns that restore the values before it, to be applied last to first."""
        self._presets = {
            of: list(METHODS[of].presets.values()).index(rules) if rules in METHODS[of].presets.values() else -1
            for of, rules in controls.config.parameters.items()
            if of in METHODS
        }
        """Index of the last chosen preset of each parameter set; -1 for none."""

    def take(self, record: Record) -> None:
        """Drops turns that are in force now; a new run begins with all earlier turns in force."""
        if isinstance(record, Run):
            self._pending.clear()
        elif isinstance(record, Knob) and record.turn:
            of = owner(record.name, rules_of(record.method))
            self._pending = [turn for turn in self._pending if turn.of != of or turn.number > record.turn]

    def watched(self, state: RunState) -> str:
        """The method whose knobs are turned."""
        return state.watched or self._controls.config.methods[0]

    def of(self, state: RunState) -> RulesName | None:
        """The parameter set of the watched method; None for a method without knobs."""
        return rules_of(self.watched(state))

    @property
    def sampling(self) -> Sampling:
        """Sampling settings including all turns."""
        return self._controls.config.sampling

    def wanted(self, state: RunState) -> Mapping[KnobName, float]:
        """Values of the watched method's pending turns, by knob; `state` is the newest.

        Several turns of temperature or top-p may come into force as one, so these are compared by value.
        """
        sampling, of = self.sampling, self.of(state)
        own = {turn.name: turn.value for turn in self._pending if turn.of == of}
        shared = {name: sampling.knob(name) for name in sampling.ends()}
        return own | {name: value for name, value in shared.items() if state.lane.settings.get(name, value) != value}

    def rules(self, state: RunState) -> TunableParameters | None:
        """The watched method's parameters including pending turns; None for a method without knobs."""
        of = self.of(state)
        return self._rules(of, state) if of else None

    def move(self, name: KnobName, distance: float, state: RunState) -> bool:
        """Turns a knob by `distance` from its value, including pending turns; returns whether the value changes."""
        of = owner(name, self.of(state))
        rules = self._rules(of, state) if of else None
        if rules is None or not rules.has(name):
            return False
        return self.set({name: rules.knob(name) + distance}, state)

    def set(self, values: Mapping[KnobName, float], state: RunState) -> bool:
        """Turns knobs of one parameter set to the nearest values of their grids and bounds, as one step of undo.

        Returns whether any value changes.
        """
        of = owner(next(iter(values)), self.of(state))
        return of is not None and self._step(of, [(self._settled(of, values, state), False)], state)

    def history(self, state: RunState) -> None:
        """Switches history on, or off: then the knobs that it moves keep their present values."""
        rules = self.rules(state)
        if isinstance(rules, AdaptiveTree) and not rules.history:
            self.set({"history": 1.0}, state)
        else:
            self.hold({}, state)

    def hold(self, values: Mapping[KnobName, float], state: RunState) -> None:
        """Switches history off, and sets the knobs that it moves to `values` or else to their present values.

        History may move them before it is off, so the values are set even where they are in force now.
        """
        of, rules = self.of(state), self.rules(state)
        if of is not None and isinstance(rules, AdaptiveTree):
            held = {**{name: rules.knob(name) for name in MOVED}, **values}
            self._step(of, [({"history": 0.0}, False), (self._settled(of, held, state), True)], state)

    def undo(self, state: RunState) -> list[Turn]:
        """Undoes the last key press; returns the turns that do so, none without a press."""
        turns = self._undoing.pop() if self._undoing else []
        # History may have moved these knobs since the state was drawn.
        moved = MOVED if any(turn.name == "history" and not turn.value for turn in turns) else ()
        for turn in reversed(turns):
            of = turn.of or SAMPLING
            if turn.name in moved or self._rules(of, state).knob(turn.name) != turn.value:
                self._turn(turn.name, turn.value, of)
        return turns

    def defaults(self, state: RunState) -> bool:
        """Turns the watched method's and the shared knobs back to their values at the start; whether any changes."""
        of = self.of(state) or SAMPLING
        return self._turn_to(of, (self._first.rules(of), self._first.sampling), state)

    def next_preset(self, state: RunState) -> str | None:
        """Turns all knobs to the next preset; returns its name, or None for a method without presets."""
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
            with suppress(ConfigError):  # the round's knobs may be outside the bounds that a later turn has set
                rules = replace(rules, tau_h=knobs.tau_h, tau_l=knobs.tau_l, d0=knobs.d0)
        for turn in self._pending:
            if turn.of == of:
                rules = rules.turned(turn.name, turn.value)
        return rules

    def _turn_to(self, of: RulesName, sets: Sequence[TunableParameters], state: RunState) -> bool:
        """Turns all knobs of parameter sets, twice over, since the bounds of a knob depend on later ones."""
        values = {name: rules.knob(name) for rules in sets for name in rules.ends()}
        return self._step(of, [(values, False), (values, False)], state)

    def _step(self, of: RulesName, turns: Sequence[tuple[Mapping[KnobName, float], bool]], state: RunState) -> bool:
        """Turns groups of knobs in order, those with True even to values in force; whether any turn was made."""
        undoing: list[Turn] = []
        for values, always in turns:
            for name, value in values.items():
                own = owner(name, of)
                rules = self._rules(own, state)
                old, new = rules.knob(name), rules.turned(name, value).knob(name)
                if name == "history" and new > old:
                    undoing += [Turn(moved, self._restorable(of, moved, rules), of) for moved in MOVED]
                if always or old != new:
                    undoing.append(Turn(name, self._restorable(own, name, rules), own))
                    self._turn(name, new, own)
        if undoing:
            self._undoing.append(undoing)
        return bool(undoing)

    def _settled(self, of: RulesName, values: Mapping[KnobName, float], state: RunState) -> dict[KnobName, float]:
        return {name: self._rules(owner(name, of), state).settled(name, value) for name, value in values.items()}

    def _restorable(self, of: RulesName, name: KnobName, rules: TunableParameters) -> float:
        """A knob's value as it was configured, or the nearest of its grid where history has moved it."""
        value = rules.knob(name)
        configured = value == self._controls.config.rules(of).knob(name)
        return value if configured else rules.settled(name, value)

    def _turn(self, name: KnobName, value: float, of: RulesName) -> None:
        self._pending.append(self._controls.turn(name, value, of))
