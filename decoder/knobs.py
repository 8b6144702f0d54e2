"""Knobs: parameters that can be changed during a run, with their bounds, steps, names and formatted values.

This module does not know the parameters of methods, since each parameter set defines its own knobs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from decoder.errors import require

KnobName: TypeAlias = str
"""Name of a knob, as in events and recordings; methods with a knob of the same name share this knob."""
RulesName: TypeAlias = str
"""Name of a parameter set, which is the name of the method that defines the set. Other methods may use the set too."""

KNOB_DIGITS = 6
"""Number of decimals to which values are rounded, so that adding steps does not give values such as
.9500000000000001.
"""
KNOB_GAP = 0.01
"""Smallest difference between tau_h and tau_l that knobs allow; also the smallest value of tau_l."""
HIGHEST_DEPTH = 32
HIGHEST_BRANCHING = 16
HIGHEST_NODES = 1024
"""Upper bounds of knobs for depth, branching and number of nodes. If a run starts with a value above the bound, this
value is the knob's bound. `HIGHEST_DEPTH` is also the bound of chain lengths.
"""
MOST = 1 << 12
"""Upper limit of integer parameters, so that a tree's memory and loops over its levels stay feasible."""


def require_feasible(given: Mapping[str, int], *about: str) -> None:
    """Raises ConfigError if an integer in `given` is larger than `MOST`; the error message names the integer by its
    key.
    """
    for name, value in given.items():
        require(value <= MOST, f"{name} is {value}; give {MOST} or less", *(about or (name,)))


@dataclass(frozen=True)
class KnobInfo:
    """Description of one knob: its parameter, bounds, steps, and texts for the user."""

    name: KnobName
    symbol: str
    """Symbol of the knob in the paper."""
    meaning: str
    """Description in plain words, at most 40 characters."""
    kind: Literal["whole", "real", "probability", "switch"]
    """Kind of value. The slider of a probability always spans 0 to 1, even if the knob's bounds are narrower."""
    ends: Callable[[Any], tuple[float, float]]
    """Function from a parameter set to the knob's lowest and highest value, which may depend on the set's other
    parameters. The current value is in this range.
    """
    step: float = 1
    coarse: float = 4
    """Size of a large step, taken with the shift key."""
    turns: str = ""
    """Name of the knob's parameter, if it differs from the knob's name."""
    part: int | None = None
    """Index of the knob's value within the parameter, if the parameter is a tuple."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Values of a switch's parameter; keys are the names of the values. The knob's value is an index into this mapping,
    from 0. Empty for knobs of other kinds.
    """
    keys: str = ""
    """The two default keys that lower and raise the value: `[]`, `{}`, `-=`, `()` or `,;`. Empty if the knob has no
    keys.
    """
    brief: str = ""
    """Meaning in two words, shown next to the knob's slider."""
    key_help: str = ""
    """Description of the knob's keys in the key map."""

    @property
    def parameter(self) -> str:
        """Name of the knob's parameter."""
        return self.turns or self.name

    @property
    def integer(self) -> bool:
        """Whether the knob's values are integers."""
        return self.kind in ("whole", "switch")

    @property
    def digits(self) -> int:
        """Number of decimals of formatted values, and of the values that keys and sliders can set."""
        if self.integer:
            return 0
        return 2 if self.step >= 1 else 3

    def written(self, value: float) -> str:
        """Formats a value, for example as 0.85, 5.3, 256 or on."""
        if self.values:
            return list(self.values)[self._place(value)]
        text = f"{value:.{self.digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text

    def settled(self, value: float, low: float, high: float) -> float:
        """The value nearest to `value` among those from `low` to `high` that keys and sliders can set. If they can set
        no value in this range, the result is `value`, clamped to the range.
        """
        bounded = min(high, max(low, value))
        steps = (round(bounded * 10**self.digits) + aside for aside in (0, -1, 1))
        on_grid = (round(step / 10**self.digits, self.digits) for step in steps)
        return next((nearest for nearest in on_grid if low <= nearest <= high), bounded)

    def value_of(self, parameter: Any) -> Any:
        """The knob's value for a given value of its parameter; a parameter value from a recording may have any type."""
        if self.part is not None:
            several = isinstance(parameter, list | tuple) and len(parameter) > self.part
            return parameter[self.part] if several else None
        places = list(self.values.values())
        return places.index(parameter) if parameter in places else parameter

    def put(self, value: float, parameter: Any) -> Any:
        """New value of the knob's parameter after the knob is set to `value`; `parameter` is the parameter's current
        value.
        """
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
    """A parameter set. The parameters that have knobs can be changed during a run."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = ()

    def ends(self) -> dict[KnobName, tuple[float, float]]:
        """Lowest and highest value of each knob, given the other knobs' current values.

        The current value is always within these bounds.
        """
        return {knob.name: knob.ends(self) for knob in self.knobs}

    def has(self, name: KnobName) -> bool:
        """Whether this parameter set has a knob of this name."""
        return any(knob.name == name for knob in self.knobs)

    def knob(self, name: KnobName) -> float:
        """The current value of one knob.

        Raises:
            ConfigError: No knob has this name.
        """
        bounds(self, name)
        return next(float(knob.value_of(getattr(self, knob.parameter))) for knob in self.knobs if knob.name == name)

    def turned(self, name: KnobName, value: float) -> Self:
        """A copy of these parameters with one knob set to `value`, clamped to the knob's bounds.

        Raises:
            ConfigError: No knob has this name, or `value` is NaN.
        """
        require(not math.isnan(value), f"{name} cannot be set to NaN; give a number")
        low, high = bounds(self, name)
        return self.with_knobs({name: min(high, max(low, value))})

    def settled(self, name: KnobName, value: float) -> float:
        """The value nearest to `value` among those within the knob's bounds that keys and sliders can set. If they can
        set no value within the bounds, the result is `value`, clamped to the bounds.

        Raises:
            ConfigError: No knob has this name.
        """
        low, high = bounds(self, name)
        return next(knob.settled(value, low, high) for knob in self.knobs if knob.name == name)

    def with_knobs(self, values: Mapping[KnobName, float]) -> Self:
        """A copy of these parameters with several knobs set at once, since some values are valid only in combination.

        Raises:
            ConfigError: The values are not valid together.
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
