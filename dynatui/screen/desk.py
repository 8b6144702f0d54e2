"""The knobs under the user's hand: what was turned, what is not in force yet, and the way back.

Knows neither keys nor widgets. A value starts from what is in force, which history may have moved; the bounds are those
of `decoder.config`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from decoder.config import PRESETS, RunConfig
from decoder.errors import ConfigError
from decoder.events import Knob, Run
from decoder.knobs import KnobName
from dynatui.fold.state import Record, RunState
from dynatui.sources.source import Controls

_NAMES: tuple[KnobName, ...] = get_args(KnobName)


class Desk:
    """Turns knobs through an engine's controls."""

    def __init__(self, controls: Controls) -> None:
        self.wanted: dict[KnobName, float] = {}
        """Turned, and not in force yet."""
        self._controls = controls
        self._first = controls.config
        self._turned: list[tuple[KnobName, float]] = []
        """Which knobs were turned, with the value before."""
        begun_with = [place for place, rules in enumerate(PRESETS.values()) if rules == controls.config.dynatree]
        self._preset = begun_with[0] if begun_with else -1

    def take(self, record: Record) -> None:
        """Learns what has come into force."""
        if isinstance(record, Run):
            self.wanted.clear()
        elif isinstance(record, Knob) and record.source == "user":
            self.wanted.pop(record.name, None)

    def config(self, state: RunState) -> RunConfig:
        """The parameters as they are about to be in force."""
        config = self._controls.config
        if state.knobs is not None:
            try:
                moved = replace(config.dynatree, tau_h=state.knobs.tau_h, tau_l=state.knobs.tau_l, d0=state.knobs.d0)
            except ConfigError:
                moved = config.dynatree  # a round under knobs that a turn has made impossible since
            config = replace(config, dynatree=moved)
        for name, value in self.wanted.items():
            config = config.turned(name, value)
        return config

    def move(self, name: KnobName, distance: float, state: RunState) -> None:
        """Turns a knob from where it is, or from where it is about to be."""
        self.set(name, self.config(state).knob(name) + distance, state)

    def set(self, name: KnobName, value: float, state: RunState) -> None:
        """Turns a knob to a value, or the nearest that its bounds allow."""
        config = self.config(state)
        before, after = config.knob(name), config.turned(name, value).knob(name)
        if after != before:
            self._turned.append((name, before))
            self._turn(name, after)

    def undo(self, state: RunState) -> KnobName | None:
        """Takes back the last turn; which knob it was."""
        if not self._turned:
            return None
        name, before = self._turned.pop()
        if self.config(state).knob(name) != before:
            self._turn(name, before)
        return name

    def defaults(self, state: RunState) -> None:
        """Turns everything back to what the program was started with."""
        self._turn_to(self._first.knob, state)

    def next_preset(self, state: RunState) -> str:
        """Turns DynaTree's knobs to those of the next preset; its name."""
        self._preset = (self._preset + 1) % len(PRESETS)
        name = tuple(PRESETS)[self._preset]
        self._turn_to(replace(self.config(state), dynatree=PRESETS[name]).knob, state)
        return name

    def _turn_to(self, value: Callable[[KnobName], float], state: RunState) -> None:
        """Twice over, since a knob may stand in the way of one that comes before it."""
        for name in (*_NAMES, *_NAMES):
            self.set(name, value(name), state)

    def _turn(self, name: KnobName, value: float) -> None:
        self.wanted[name] = value
        self._controls.turn(name, value)
