"""What a knob is: how a parameter is turned mid-run within its bounds, and how people see and write its value.

Knows no method's parameters: each parameter set lists its knobs itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from decoder.errors import require

KnobName: TypeAlias = str
"""A knob by its name, which events and recordings carry; one name is one knob in all methods that have it."""
RulesName: TypeAlias = str
"""A parameter set by the name of the method that it belongs to; other methods may obey it too."""

KNOB_DIGITS = 6
"""Decimals that a value keeps: no sum of steps is .9500000000000001."""
KNOB_GAP = 0.01
"""Least distance of tau_h and tau_l while they are turned, and least tau_l."""
HIGHEST_DEPTH = 32
HIGHEST_BRANCHING = 16
HIGHEST_NODES = 1024
"""As far as these are turned, unless they began higher; a chain's length counts as a depth."""
MOST = 1 << 12
"""No whole number of the rules is larger: what is kept for a tree, and counted level by level, must stay feasible."""


def require_feasible(given: Mapping[str, int]) -> None:
    """Raises ConfigError where a whole number, given by its name in messages, is larger than `MOST`."""
    for name, value in given.items():
        require(value <= MOST, f"{name} is {value}; give {MOST} or less")


@dataclass(frozen=True)
class KnobInfo:
    """One knob: the parameter that it turns, and how people see it."""

    name: KnobName
    symbol: str
    """As in the paper."""
    meaning: str
    """In plain words, at most 40 characters."""
    kind: Literal["whole", "real", "probability", "switch"]
    """A probability is drawn on a scale from 0 to 1, whatever its bounds of the moment are."""
    ends: Callable[[Any], tuple[float, float]]
    """The lowest and highest value that it can be turned to while the other parameters stay; its own is among them."""
    step: float = 1
    coarse: float = 4
    """The step with shift."""
    turns: str = ""
    """The parameter that it turns, where that has another name."""
    part: int | None = None
    """Which value of that parameter, where it has several."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Of a switch: what the parameter can be, as people write it; the knob's value is the place, from 0."""
    keys: str = ""
    """Two keys of its own that turn it down and up, unless they are bound anew: [], {}, -=, () or ,;."""
    brief: str = ""
    """Beside its slider, of a knob with keys: its meaning in two words."""
    key_help: str = ""
    """Of a knob with keys: what the key map says of them."""

    @property
    def parameter(self) -> str:
        """The parameter that it turns."""
        return self.turns or self.name

    @property
    def integer(self) -> bool:
        """Whether it has no values between whole numbers."""
        return self.kind in ("whole", "switch")

    @property
    def digits(self) -> int:
        """Decimals of its grid: it is written with them, and a hand sets no value between."""
        if self.integer:
            return 0
        return 2 if self.step >= 1 else 3

    def written(self, value: float) -> str:
        """A value as people write it: .85, 5.3, 256, on."""
        if self.values:
            return list(self.values)[self._place(value)]
        text = f"{value:.{self.digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text[1:] if text.startswith("0.") else text

    def settled(self, value: float, low: float, high: float) -> float:
        """The value of the knob's grid that is nearest to `value` within bounds; where the grid has none, the bound."""
        bounded = min(high, max(low, value))
        steps = (round(bounded * 10**self.digits) + aside for aside in (0, -1, 1))
        on_grid = (round(step / 10**self.digits, self.digits) for step in steps)
        return next((found for found in on_grid if low <= found <= high), bounded)

    def value_of(self, parameter: Any) -> Any:
        """The knob's value where its parameter has this one; nothing is sure of what a recording gives as parameter."""
        if self.part is not None:
            several = isinstance(parameter, list | tuple) and len(parameter) > self.part
            return parameter[self.part] if several else None
        places = list(self.values.values())
        return places.index(parameter) if parameter in places else parameter

    def put(self, value: float, parameter: Any) -> Any:
        """What its parameter becomes, from what it is, when the knob has this value."""
        changed: Any = math.floor(value + 0.5) if self.integer else value
        if self.values:
            return list(self.values.values())[self._place(value)]
        if self.part is not None:
            return (*parameter[: self.part], changed, *parameter[self.part + 1 :])
        return changed

    def _place(self, value: float) -> int:
        return min(max(math.floor(value + 0.5), 0), len(self.values) - 1)


@dataclass(frozen=True)
class TunableParameters:
    """Parameters of which some can be turned mid-run."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = ()

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """The knobs, each with the lowest and highest value that it can be turned to while the others stay.

        The present value is always among them.
        """
        return {knob.name: knob.ends(self) for knob in self.knobs}

    def has(self, name: KnobName) -> bool:
        """Whether there is such a knob here."""
        return any(knob.name == name for knob in self.knobs)

    def knob(self, name: KnobName) -> float:
        """The value of one knob.

        Raises:
            ConfigError: There is no such knob here.
        """
        bounds(self, name)
        return next(float(knob.value_of(getattr(self, knob.parameter))) for knob in self.knobs if knob.name == name)

    def turned(self, name: KnobName, value: float) -> Self:
        """These parameters with one knob at `value`, moved to the nearest value that its bounds allow.

        Raises:
            ConfigError: There is no such knob here, or `value` is no number.
        """
        require(not math.isnan(value), f"{name} cannot be turned to a value that is no number; give a number")
        low, high = bounds(self, name)
        return self.with_knobs({name: min(high, max(low, value))})

    def settled(self, name: KnobName, value: float) -> float:
        """The value of a knob's grid that is nearest to `value` within its bounds; where the grid has none, the bound.

        Raises:
            ConfigError: There is no such knob here.
        """
        low, high = bounds(self, name)
        return next(knob.settled(value, low, high) for knob in self.knobs if knob.name == name)

    def with_knobs(self, values: Mapping[KnobName, float]) -> Self:
        """These parameters with several knobs set at once, since one may be possible only beside another.

        Raises:
            ConfigError: These values are not possible.
        """
        changed: dict[str, Any] = {}
        for knob in self.knobs:
            if knob.name in values:
                now = changed.get(knob.parameter, getattr(self, knob.parameter))
                changed[knob.parameter] = knob.put(values[knob.name], now)
        return replace(self, **changed)


def bounds(rules: TunableParameters, name: KnobName) -> tuple[float, float]:
    """The lowest and the highest value that a knob can be turned to now.

    Raises:
        ConfigError: There is no such knob in these rules.
    """
    ends = rules.ends()
    require(name in ends, f"{type(rules).__name__} has no knob {name}; choose from {', '.join(ends)}")
    return ends[name]
