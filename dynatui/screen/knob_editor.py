"""Turning knobs: what the user turned, what is not in force yet, and undo; knows neither keys nor widgets.

Turns act on the parameter set of the watched method; before the models are loaded, on that of the first. A value starts
from what is in force, which history may have moved. Temperature and top-p are turned for all methods, whichever
is watched.
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
        """Turns of the methods' knobs in this run that no method has put in force yet."""
        self._undoing: list[list[Turn]] = []
        """For each key press the turns back to the values before, which are made from the last to the first."""
        self._presets = {
            of: list(METHODS[of].presets.values()).index(rules) if rules in METHODS[of].presets.values() else -1
            for of, rules in controls.config.parameters.items()
            if of in METHODS
        }
        """The preset that each parameter set was turned to last; -1 for none."""

    def take(self, record: Record) -> None:
        """Drops turns that have come into force; a run begins with all earlier ones."""
        if isinstance(record, Run):
            self._pending.clear()
        elif isinstance(record, Knob) and record.turn:
            of = owner(record.name, rules_of(record.method))
            self._pending = [turn for turn in self._pending if turn.of != of or turn.number > record.turn]

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
        """Knobs of the watched method that were turned and are not in force yet; `state` is the newest.

        Several turns of temperature or top-p may come into force as one, so these are compared by value.
        """
        sampling, of = self.sampling, self.of(state)
        own = {turn.name: turn.value for turn in self._pending if turn.of == of}
        shared = {name: sampling.knob(name) for name in sampling.ends()}
        return own | {name: value for name, value in shared.items() if state.lane.settings.get(name, value) != value}

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

    def undo(self, state: RunState) -> list[Turn]:
        """Takes back the last key press; the turns back, none where there was no press."""
        turns = self._undoing.pop() if self._undoing else []
        # Rounds may have moved them since the state was drawn.
        moved = MOVED if any(turn.name == "history" and not turn.value for turn in turns) else ()
        for turn in reversed(turns):
            of = turn.of or SAMPLING
            if turn.name in moved or self._rules(of, state).knob(turn.name) != turn.value:
                self._turn(turn.name, turn.value, of)
        return turns

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
        for turn in self._pending:
            if turn.of == of:
                rules = rules.turned(turn.name, turn.value)
        return rules

    def _turn_to(self, of: RulesName, sets: Sequence[TunableParameters], state: RunState) -> bool:
        """Twice over, since a knob may stand in the way of one that comes before it."""
        values = {name: rules.knob(name) for rules in sets for name in rules.ends()}
        return self._step(of, [(values, False), (values, False)], state)

    def _step(self, of: RulesName, turns: Sequence[tuple[Mapping[KnobName, float], bool]], state: RunState) -> bool:
        """Turns knobs to values in this order, those of a group that says so even where they have them already."""
        undoing: list[Turn] = []
        for values, always in turns:
            for name, value in values.items():
                own = owner(name, of)
                rules = self._rules(own, state)
                old, new = rules.knob(name), rules.turned(name, value).knob(name)
                if name == "history" and new > old:
                    undoing += [Turn(moved, self._told(of, moved, rules), of) for moved in MOVED]
                if always or old != new:
                    undoing.append(Turn(name, self._told(own, name, rules), own))
                    self._turn(name, new, own)
        if undoing:
            self._undoing.append(undoing)
        return bool(undoing)

    def _settled(self, of: RulesName, values: Mapping[KnobName, float], state: RunState) -> dict[KnobName, float]:
        return {name: self._rules(owner(name, of), state).settled(name, value) for name, value in values.items()}

    def _told(self, of: RulesName, name: KnobName, rules: TunableParameters) -> float:
        """A knob's value as it was given, or on its grid where history moved it."""
        value = rules.knob(name)
        given = value == self._controls.config.rules(of).knob(name)
        return value if given else rules.settled(name, value)

    def _turn(self, name: KnobName, value: float, of: RulesName) -> None:
        self._pending.append(self._controls.turn(name, value, of))
