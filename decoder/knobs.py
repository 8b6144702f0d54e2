"""What can be turned while a run goes on: the names of all knobs, and how parameters are turned within their bounds.

Knows no method's rules: which knobs a method has, and how far each can be turned, its parameters say themselves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, get_args

from decoder.errors import require

KnobName = Literal[
    "tau_h",
    "tau_l",
    "d0",
    "history",
    "d_max",
    "b_min",
    "b_mid",
    "b_max",
    "rho_stop",
    "rho_deep",
    "tau",
    "n_max",
    "selection",
    "k",
    "fixed_depth",
    "fixed_branching",
    "fixed_tau",
]
KNOBS: tuple[KnobName, ...] = get_args(KnobName)
"""Every knob. `n_max` belongs to DynaTree and to the fixed tree; of switches (`SWITCHES`), the value is a place."""

KNOB_DIGITS = 6
"""Decimals that a value keeps: no sum of steps is .9500000000000001."""
KNOB_GAP = 0.01
"""Least distance of tau_h and tau_l while they are turned, and least tau_l."""
HIGHEST_DEPTH = 32
HIGHEST_BRANCHING = 16
HIGHEST_NODES = 1024
"""As far as these are turned, unless they began higher; a chain's length counts as a depth."""

BRANCHES: tuple[KnobName, ...] = ("b_min", "b_mid", "b_max")
"""The knobs that turn one of the three values of `branching`."""
_FIELDS: dict[KnobName, str] = {
    **dict.fromkeys(BRANCHES, "branching"),
    "fixed_depth": "depth",
    "fixed_branching": "branching",
    "fixed_tau": "tau",
}
"""The parameter that a knob turns, where it has another name."""
SWITCHES: Mapping[KnobName, tuple[object, ...]] = {"history": (False, True), "selection": ("bfs", "best")}
"""Values of the knobs that are no numbers, each turned to by its place: history on is 1, selection best is 1."""
_UNEVEN = frozenset[KnobName](("tau_h", "tau_l", "d0", "rho_stop", "rho_deep", "tau", "fixed_tau"))
WHOLE = frozenset(KNOBS) - _UNEVEN - frozenset(SWITCHES)
"""Knobs that are whole numbers."""


def parameter_of(name: KnobName) -> str:
    """The parameter that a knob turns."""
    return _FIELDS.get(name, name)


@dataclass(frozen=True)
class Turnable:
    """Parameters of which some can be turned mid-run."""

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The knobs, each with the lowest and highest value that it can be turned to while the others stay.

        The present value is always among them.
        """
        return {}

    def has(self, name: KnobName) -> bool:
        """Whether there is such a knob here."""
        return name in self.ends()

    def knob(self, name: KnobName) -> float:
        """The value of one knob.

        Raises:
            ConfigError: There is no such knob here.
        """
        bounds(self, name)
        value = getattr(self, parameter_of(name))
        if name in SWITCHES:
            return float(SWITCHES[name].index(value))
        return float(value[BRANCHES.index(name)] if name in BRANCHES else value)

    def turned(self, name: KnobName, value: float) -> Self:
        """These parameters with one knob at `value`, moved to the nearest value that its bounds allow.

        Raises:
            ConfigError: There is no such knob here, or `value` is no number.
        """
        require(not math.isnan(value), f"{name} cannot be turned to a value that is no number; give a number")
        low, high = bounds(self, name)
        nearest: float = min(high, max(low, value))
        changed: Any = nearest if name in _UNEVEN else math.floor(nearest + 0.5)
        parameter = parameter_of(name)
        if name in SWITCHES:
            changed = SWITCHES[name][changed]
        elif name in BRANCHES:
            now = getattr(self, parameter)
            changed = tuple(changed if branch == name else old for branch, old in zip(BRANCHES, now, strict=True))
        return replace(self, **{parameter: changed})


class Bounded(Protocol):
    """Whatever can be turned: the parameters of a method, or of a whole run."""

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """See `Turnable.ends`."""


def bounds(rules: Bounded, name: KnobName) -> tuple[float, float]:
    """The lowest and the highest value that a knob can be turned to now.

    Raises:
        ConfigError: There is no such knob in these rules.
    """
    ends = rules.ends()
    require(name in ends, f"{type(rules).__name__} has no knob {name}; choose from {', '.join(ends)}")
    return ends[name]
