"""Knobs: parameters that can be turned mid-run, with bounds, steps, names and text of their values.

Knows no method's parameters: each parameter set lists its knobs itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from decoder.errors import require

KnobName: TypeAlias = str
"""Name of a knob, as in events and recordings; one name is one knob in all methods that have it."""
RulesName: TypeAlias = str
"""Name of a parameter set: that of the method it belongs to; other methods may obey it too."""

KNOB_DIGITS = 6
"""Decimals to which values are rounded, so that no sum of steps is .9500000000000001."""
KNOB_GAP = 0.01
"""Least distance between tau_h and tau_l while they are turned, and least tau_l."""
HIGHEST_DEPTH = 32
HIGHEST_BRANCHING = 16
HIGHEST_NODES = 1024
"""Highest values of knobs, unless a run begins with higher ones; the length of a chain is a depth."""
MOST = 1 << 12
"""Largest integer parameter of the rules, so that memory for a tree and loops over its levels stay feasible."""


def require_feasible(given: Mapping[str, int]) -> None:
    """Raises ConfigError where an integer, by its name in messages, is larger than `MOST`."""
    for name, value in given.items():
        require(value <= MOST, f"{name} is {value}; give {MOST} or less")


@dataclass(frozen=True)
class KnobInfo:
    """One knob: its parameter, bounds and steps, and its presentation."""

    name: KnobName
    symbol: str
    """Symbol in the paper."""
    meaning: str
    """Description in plain words, at most 40 characters."""
    kind: Literal["whole", "real", "probability", "switch"]
    """Kind of value; a probability is shown on a scale from 0 to 1, whatever its present bounds."""
    ends: Callable[[Any], tuple[float, float]]
    """Bounds: lowest and highest value beside the other parameters' present values; its own value is within them."""
    step: float = 1
    coarse: float = 4
    """Large step, with the shift key."""
    turns: str = ""
    """Name of its parameter, where it differs from the knob's."""
    part: int | None = None
    """Index of its value in that parameter, where the parameter has several."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Values of a switch by their names; the knob's value is the index, from 0. Empty for other knobs."""
    keys: str = ""
    """Its two keys for down and up, unless the user binds others: [], {}, -=, () or ,;. Empty without keys."""
    brief: str = ""
    """Meaning in two words, beside the slider of a knob with keys."""
    key_help: str = ""
    """Description of its keys in the key map."""

    @property
    def parameter(self) -> str:
        """Name of its parameter."""
        return self.turns or self.name

    @property
    def integer(self) -> bool:
        """Whether its values are integers."""
        return self.kind in ("whole", "switch")

    @property
    def digits(self) -> int:
        """Decimals of its grid, with which values are written and to which keys and sliders are limited."""
        if self.integer:
            return 0
        return 2 if self.step >= 1 else 3

    def written(self, value: float) -> str:
        """Text of a value: .85, 5.3, 256, on."""
        if self.values:
            return list(self.values)[self._place(value)]
        text = f"{value:.{self.digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text[1:] if text.startswith("0.") else text

    def settled(self, value: float, low: float, high: float) -> float:
        """Nearest value on the knob's grid within bounds; where the grid has none there, the nearest bound."""
        bounded = min(high, max(low, value))
        steps = (round(bounded * 10**self.digits) + aside for aside in (0, -1, 1))
        on_grid = (round(step / 10**self.digits, self.digits) for step in steps)
        return next((nearest for nearest in on_grid if low <= nearest <= high), bounded)

    def value_of(self, parameter: Any) -> Any:
        """The knob's value for a value of its parameter, which may have any type where it is from a recording."""
        if self.part is not None:
            several = isinstance(parameter, list | tuple) and len(parameter) > self.part
            return parameter[self.part] if several else None
        places = list(self.values.values())
        return places.index(parameter) if parameter in places else parameter

    def put(self, value: float, parameter: Any) -> Any:
        """New value of its parameter, from the present one, when the knob is set to `value`."""
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
    """Parameters, some of which can be turned mid-run by knobs."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = ()

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """Bounds of each knob, lowest and highest, beside the other knobs' present values.

        The present value is always within them.
        """
        return {knob.name: knob.ends(self) for knob in self.knobs}

    def has(self, name: KnobName) -> bool:
        """Whether these parameters have a knob of this name."""
        return any(knob.name == name for knob in self.knobs)

    def knob(self, name: KnobName) -> float:
        """The value of one knob.

        Raises:
            ConfigError: No knob has this name.
        """
        bounds(self, name)
        return next(float(knob.value_of(getattr(self, knob.parameter))) for knob in self.knobs if knob.name == name)

    def turned(self, name: KnobName, value: float) -> Self:
        """These parameters with one knob set to `value`, clipped to its bounds.

        Raises:
            ConfigError: No knob has this name, or `value` is NaN.
        """
        require(not math.isnan(value), f"{name} cannot be turned to a value that is no number; give a number")
        low, high = bounds(self, name)
        return self.with_knobs({name: min(high, max(low, value))})

    def settled(self, name: KnobName, value: float) -> float:
        """Nearest value on a knob's grid within its bounds; where the grid has none there, the nearest bound.

        Raises:
            ConfigError: No knob has this name.
        """
        low, high = bounds(self, name)
        return next(knob.settled(value, low, high) for knob in self.knobs if knob.name == name)

    def with_knobs(self, values: Mapping[KnobName, float]) -> Self:
        """These parameters with several knobs set at once, since some values are possible only together.

        Raises:
            ConfigError: The values are not possible together.
        """
        changed: dict[str, Any] = {}
        for knob in self.knobs:
            if knob.name in values:
                now = changed.get(knob.parameter, getattr(self, knob.parameter))
                changed[knob.parameter] = knob.put(values[knob.name], now)
        return replace(self, **changed)


def bounds(rules: TunableParameters, name: KnobName) -> tuple[float, float]:
    """Present bounds of a knob, lowest and highest.

    Raises:
        ConfigError: The rules have no knob of this name.
    """
    ends = rules.ends()
    require(name in ends, f"{type(rules).__name__} has no knob {name}; choose from {', '.join(ends)}")
    return ends[name]
