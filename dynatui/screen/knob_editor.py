"""Changes the knobs of the watched method (before the models are loaded: of the first method), with undo. A change is
pending until a round uses it. Temperature and top-p are changed for all methods. Independent of keys and widgets.
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
from dynatui.sources.engine import EngineSource
from dynatui.state.run_state import Record, RunState

MOVED: tuple[KnobName, ...] = ("d0", "tau_h")


class KnobEditor:
    def __init__(self, controls: EngineSource) -> None:
        self._controls = controls
        self._first = controls.config
        self._pending: list[Turn] = []
        """Knob changes of this run that no round has used yet."""
        self._undoing: list[list[Turn]] = []
        """Undo stack: for each key press, the changes that restore the earlier values, to be made in reverse order."""

    def take(self, record: Record) -> None:
        """Drops pending changes that are in force after `record`: at the start of a run, all of them."""
        if isinstance(record, Run):
            self._pending.clear()
        elif isinstance(record, Knob) and record.turn:
            name = owner(record.name, rules_of(record.method))
            self._pending = [turn for turn in self._pending if turn.rules_name != name or turn.number > record.turn]

    def watched(self, state: RunState) -> str:
        return state.watched or self._controls.config.methods[0]

    def rules_name(self, state: RunState) -> RulesName | None:
        return rules_of(self.watched(state))

    @property
    def sampling(self) -> Sampling:
        """Sampling settings, with pending changes."""
        return self._controls.config.sampling

    def pending(self, state: RunState) -> Mapping[KnobName, float]:
        """Pending values by knob. Temperature and top-p are pending while the value set differs from the lane's value:
        several changes may take effect as one, so not every change has an event.
        """
        sampling, rules_name = self.sampling, self.rules_name(state)
        own = {turn.name: turn.value for turn in self._pending if turn.rules_name == rules_name}
        shared, now = {name: sampling.knob(name) for name in sampling.ends()}, state.lane.settings
        return own | {name: value for name, value in shared.items() if now.get(name, value) != value}

    def rules(self, state: RunState) -> TunableParameters | None:
        """Parameters of the watched method, with pending changes; None for a method without knobs."""
        rules_name = self.rules_name(state)
        return self._rules(rules_name, state) if rules_name else None

    def move(self, name: KnobName, distance: float, state: RunState) -> bool:
        """Adds `distance` to a knob's value, pending changes included; returns whether the value changes."""
        rules_name = owner(name, self.rules_name(state))
        rules = self._rules(rules_name, state) if rules_name else None
        if rules is None or not rules.has(name):
            return False
        return self.set({name: rules.knob(name) + distance}, state)

    def set(self, values: Mapping[KnobName, float], state: RunState) -> bool:
        """Sets knobs of one parameter set to the nearest permitted values; returns whether any value changed."""
        rules_name = owner(next(iter(values)), self.rules_name(state))
        return bool(rules_name and self._step(rules_name, [(self._settled(rules_name, values, state), False)], state))

    def history(self, state: RunState) -> None:
        """Switches the history rule on or off; when it is switched off, the knobs that it changed keep their values."""
        rules = self.rules(state)
        if isinstance(rules, AdaptiveTree) and not rules.history:
            self.set({"history": 1.0}, state)
        else:
            self.hold({}, state)

    def hold(self, values: Mapping[KnobName, float], state: RunState) -> None:
        """Switches the history rule off and sets `values`. Other knobs that the rule changes are set to their present
        values, since the rule could still change them before it is off.
        """
        rules_name, rules = self.rules_name(state), self.rules(state)
        if rules_name is not None and isinstance(rules, AdaptiveTree):
            fixed = {**{name: rules.knob(name) for name in MOVED}, **values}
            self._step(rules_name, [({"history": 0.0}, False), (self._settled(rules_name, fixed, state), True)], state)

    def undo(self, state: RunState) -> list[Turn]:
        """Undoes the last key press; returns the changes that restore the earlier values."""
        turns = self._undoing.pop() if self._undoing else []
        # The history rule may have changed knobs in `MOVED` since the state was displayed: these are always set.
        moved = MOVED if any(turn.name == "history" and not turn.value for turn in turns) else ()
        for turn in reversed(turns):
            rules_name = turn.rules_name or SAMPLING
            if turn.name in moved or self._rules(rules_name, state).knob(turn.name) != turn.value:
                self._turn(turn.name, turn.value, rules_name)
        return turns

    def defaults(self, state: RunState) -> bool:
        rules_name = self.rules_name(state) or SAMPLING
        return self._turn_to(rules_name, (self._first.rules(rules_name), self._first.sampling), state)

    def next_preset(self, state: RunState) -> str | None:
        """Sets the next preset, or the default preset if no preset is in force.

        Returns its name; None if the method has no presets.
        """
        rules_name = self.rules_name(state)
        if rules_name is None or not METHODS[rules_name].presets:
            return None
        names, presets = zip(*METHODS[rules_name].presets.items(), strict=True)
        now, usual = self._controls.config.rules(rules_name), METHODS[rules_name].defaults(self.sampling.temperature)
        place = (presets.index(now) + 1) % len(presets) if now in presets else presets.index(usual)
        self._turn_to(rules_name, (presets[place],), state)
        return str(names[place])

    def _rules(self, rules_name: RulesName, state: RunState) -> TunableParameters:
        rules = self._controls.config.rules(rules_name)
        lane = state.lane if rules_of(state.watched) == rules_name else state.lanes.get(rules_name)
        if isinstance(rules, AdaptiveTree) and lane is not None and lane.knobs is not None:
            knobs = lane.knobs
            # Values of the newest round are ignored if a later knob change has set bounds that exclude them.
            with suppress(ConfigError):
                rules = replace(rules, tau_h=knobs.tau_h, tau_l=knobs.tau_l, d0=knobs.d0)
        for turn in self._pending:
            if turn.rules_name == rules_name:
                rules = rules.turned(turn.name, turn.value)
        return rules

    def _turn_to(self, rules_name: RulesName, sets: Sequence[TunableParameters], state: RunState) -> bool:
        """Sets the knobs of all parameter sets twice, since a knob's bounds may depend on knobs set after it."""
        values = {name: rules.knob(name) for rules in sets for name in rules.ends()}
        return self._step(rules_name, [(values, False), (values, False)], state)

    def _step(
        self, rules_name: RulesName, turns: Sequence[tuple[Mapping[KnobName, float], bool]], state: RunState
    ) -> bool:
        """Sets knobs as one undo step; `turns`: (values, whether to set all of them, changed or not).

        Returns whether any value was set.
        """
        undoing: list[Turn] = []
        for values, always in turns:
            for name, value in values.items():
                owner_name = owner(name, rules_name)
                rules = self._rules(owner_name, state)
                old, new = rules.knob(name), rules.turned(name, value).knob(name)
                if name == "history" and new > old:
                    undoing += [Turn(moved, self._restorable(rules_name, moved, rules), rules_name) for moved in MOVED]
                if always or old != new:
                    undoing.append(Turn(name, self._restorable(owner_name, name, rules), owner_name))
                    self._turn(name, new, owner_name)
        if undoing:
            self._undoing.append(undoing)
        return bool(undoing)

    def _settled(
        self, rules_name: RulesName, values: Mapping[KnobName, float], state: RunState
    ) -> dict[KnobName, float]:
        rules = {name: self._rules(owner(name, rules_name), state) for name in values}
        return {name: rules[name].settled(name, value) for name, value in values.items()}

    def _restorable(self, rules_name: RulesName, name: KnobName, rules: TunableParameters) -> float:
        """Value of a knob for undo: its present value, rounded to the knob's steps if the history rule changed it."""
        value = rules.knob(name)
        configured = value == self._controls.config.rules(rules_name).knob(name)
        return value if configured else rules.settled(name, value)

    def _turn(self, name: KnobName, value: float, rules_name: RulesName) -> None:
        self._pending.append(self._controls.turn(name, value, rules_name))
