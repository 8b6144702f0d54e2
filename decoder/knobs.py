"""Knobs: parameters that can be changed during a run, with their bounds, steps, names and formatted values."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from decoder.errors import require

KnobName: TypeAlias = str
"""Name of a knob, as in events; methods with a knob of the same name share the knob."""
RulesName: TypeAlias = str
"""Name of a parameter set, which is the name of the method that defines the set."""

KNOB_DIGITS = 6
"""Decimals to which results of steps are rounded, to avoid values such as 0.9500000000000001."""
KNOB_GAP = 0.01
"""Smallest difference between tau_h and tau_l, and smallest value of tau_l."""
HIGHEST_DEPTH = 32
HIGHEST_BRANCHING = 16
HIGHEST_NODES = 1024
"""Upper bounds of the knobs for depth (also of chains), branching and nodes. If a run starts with a larger value, the
larger value is the bound.
"""
MOST = 1 << 12
"""Largest value of integer parameters, so that a tree's memory and loops over its levels stay feasible."""


def require_feasible(given: Mapping[str, int], *about: str) -> None:
    """Raises ConfigError if an integer in `given` exceeds `MOST`; the error message names the integer by its key."""
    for name, value in given.items():
        require(value <= MOST, f"{name} is {value}; give {MOST} or less", *(about or (name,)))


@dataclass(frozen=True)
class KnobInfo:
    name: KnobName
    symbol: str
    """Short symbol for display, from the DynaTree paper if the paper has the parameter."""
    meaning: str
    """Description of at most 40 characters."""
    kind: Literal["whole", "real", "probability", "switch"]
    """Kind of the value; the slider of a `probability` always spans 0 to 1, even if the bounds are narrower."""
    ends: Callable[[Any], tuple[float, float]]
    """(parameter set) -> lowest and highest value of the knob; the current value is always in this range."""
    step: float = 1
    coarse: float = 4
    """Step while the shift key is pressed."""
    turns: str = ""
    """Name of the parameter that the knob sets, if it differs from the knob's name."""
    part: int | None = None
    """Index of the element that the knob sets, if the parameter is a tuple."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Values of a switch's parameter, by displayed name; the knob's value is an index into this mapping."""
    keys: str = ""
    """Keys that lower and raise the value: `[]`, `{}`, `-=`, `()` or `,;`; empty for a knob without keys."""
    brief: str = ""
    """Label of two words beside the slider."""
    key_help: str = ""
    """Help text in the key map."""

    @property
    def parameter(self) -> str:
        return self.turns or self.name

    @property
    def integer(self) -> bool:
        return self.kind in ("whole", "switch")

    @property
    def digits(self) -> int:
        """Number of decimals of formatted values, and of values that keys and sliders can set."""
        if self.integer:
            return 0
        return 2 if self.step >= 1 else 3

    def written(self, value: float) -> str:
        """The value as text, for example 0.85, 5.3, 256 or on."""
        if self.values:
            return list(self.values)[self._place(value)]
        text = f"{value:.{self.digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text

    def settled(self, value: float, low: float, high: float) -> float:
        """The nearest value in [low, high] that keys and sliders can set; if there is none, `value`, clamped."""
        bounded = min(high, max(low, value))
        steps = (round(bounded * 10**self.digits) + aside for aside in (0, -1, 1))
        on_grid = (round(step / 10**self.digits, self.digits) for step in steps)
        return next((nearest for nearest in on_grid if low <= nearest <= high), bounded)

    def value_of(self, parameter: Any) -> Any:
        """The knob's value, given its parameter's value; a parameter from a recording may have any type."""
        if self.part is not None:
            several = isinstance(parameter, list | tuple) and len(parameter) > self.part
            return parameter[self.part] if several else None
        places = list(self.values.values())
        return places.index(parameter) if parameter in places else parameter

    def put(self, value: float, parameter: Any) -> Any:
        """New value of the parameter, whose old value is `parameter`, after the knob is set to `value`."""
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
    """A set of parameters; each parameter with a knob can be changed during a run."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = ()

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """Lowest and highest value of each knob, given the other knobs' values; each knob's value is in its range."""
        return {knob.name: knob.ends(self) for knob in self.knobs}

    def has(self, name: KnobName) -> bool:
        return any(knob.name == name for knob in self.knobs)

    def knob(self, name: KnobName) -> float:
        """Current value of a knob. Raises ConfigError for an unknown name."""
        bounds(self, name)
        return next(float(knob.value_of(getattr(self, knob.parameter))) for knob in self.knobs if knob.name == name)

    def turned(self, name: KnobName, value: float) -> Self:
        """A copy with the knob at `value`, clamped to its bounds. Raises ConfigError for an unknown name or NaN."""
        require(not math.isnan(value), f"{name} cannot be set to NaN; give a number")
        low, high = bounds(self, name)
        return self.with_knobs({name: min(high, max(low, value))})

    def settled(self, name: KnobName, value: float) -> float:
        """The value nearest to `value` that lies within the bounds and that keys and sliders can set; if there is no
        such value, `value` clamped to the bounds. Raises ConfigError for an unknown name.
        """
        low, high = bounds(self, name)
        return next(knob.settled(value, low, high) for knob in self.knobs if knob.name == name)

    def with_knobs(self, values: Mapping[KnobName, float]) -> Self:
        """A copy in which the knobs have the given values, set in one step, since some values are valid only together.
        Raises ConfigError for invalid values.
        """
        changed: dict[str, Any] = {}
        for knob in self.knobs:
            if knob.name in values:
                now = changed.get(knob.parameter, getattr(self, knob.parameter))
                changed[knob.parameter] = knob.put(values[knob.name], now)
        return replace(self, **changed)


def bounds(rules: TunableParameters, name: KnobName) -> tuple[float, float]:
    """Lowest and highest value of a knob, given the other knobs' current values.

    Raises:
        ConfigError: The parameter set has no knob of this name.
    """
    ends = rules.ends()
    require(name in ends, f"{type(rules).__name__} has no knob {name}; choose from {', '.join(ends)}")
    return ends[name]
