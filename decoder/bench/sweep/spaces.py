"""Which settings can be swept: named spaces, each a grid of a few axes, and the points of them that the paper measured.

Knows no models and no database.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import msgspec

from decoder.config import RunConfig
from decoder.errors import ConfigError, quoted, require
from decoder.knobs import TunableParameters
from decoder.methods import METHODS

Number: TypeAlias = int | float
Values: TypeAlias = Mapping[str, Number]
Axes: TypeAlias = dict[str, tuple[Number, ...]]
LENGTH = "T"
"""The axis that every space has: new tokens."""
USUAL_LENGTHS = (256,)
THRESHOLDS = (
    (0.7, 0.5),
    (0.8, 0.6),
    (0.9, 0.7),
    (0.7, 0.4),
    (0.8, 0.5),
    (0.9, 0.6),
    (0.7, 0.3),
    (0.8, 0.4),
    (0.9, 0.5),
    (0.8, 0.3),
    (0.9, 0.4),
    (0.95, 0.3),
    (0.6, 0.2),
)
"""tau_h and tau_l of the paper's figure 6."""
BREADTHS = ((1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 5))
"""B_min and B_max of it; B_mid is 2, or B_min where that is more."""
DEPTHS = ((4, 6), (5, 7), (5, 8), (6, 8), (6, 10), (7, 10), (8, 12))
"""D0 and D_max of it."""
FIXED_DEPTHS, BRANCHINGS, TAUS = (3, 4, 5, 6, 7, 8), (2, 3, 4), (0.01, 0.02, 0.03, 0.05, 0.1)
"""Of the paper's sweep of fixed trees."""
MOST_SETTINGS = 10_000
"""Every one is a row of the database and a decision at the start of each trial."""


class Setting(msgspec.Struct, frozen=True):
    """One point of a grid."""

    values: dict[str, Number]

    @property
    def key(self) -> str:
        """What tells it from all others of its grid: "tau_h=0.9 tau_l=0.4 T=256"."""
        return " ".join(f"{name}={value!r}" for name, value in self.values.items())

    @property
    def length(self) -> int:
        """New tokens."""
        return int(self.values[LENGTH])


@dataclass(frozen=True)
class Space:
    """What is varied, of which method."""

    name: str
    about: str
    method: str
    axes: Mapping[str, tuple[Number, ...]]
    """Usual values by name: a heat map's rows, then its columns, then what it shows the best of, and the length."""
    changes: Callable[[Any, Values], Mapping[str, Any]]
    """(parameters before, a setting's values) -> the parameters that these set."""
    possible: Callable[[Values], bool] = lambda _: True

    @property
    def presets(self) -> Mapping[str, TunableParameters]:
        """What the parameters off the axes can be; none: only what is usual."""
        return METHODS[self.method].presets

    def grid(self, axes: Mapping[str, tuple[Number, ...]]) -> tuple[Setting, ...]:
        """Every possible setting, the last axis fastest.

        Raises:
            ConfigError: There is none, or there are too many.
        """
        count = 1
        for values in axes.values():
            count *= len(values)
        require(count <= MOST_SETTINGS, f"the grid has {count} settings; leave {MOST_SETTINGS} or fewer")
        points = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
        found = tuple(Setting(point) for point in points if self.possible(point))
        require(bool(found), f"no setting of these axes is possible; {self.about}")
        return found

    def config(self, base: TunableParameters, setting: Setting) -> RunConfig:
        """How a setting decodes.

        Raises:
            ConfigError: A value is out of its bounds.
        """
        return self.plain_config(base, setting).with_rules(self.method, self.rules(base, setting.values))

    def rules(self, base: TunableParameters, values: Values) -> TunableParameters:
        """The parameters of a method with these values.

        Raises:
            ConfigError: A value is out of its bounds.
        """
        return replace(base, **self.changes(base, values))

    def plain_config(self, base: TunableParameters, setting: Setting) -> RunConfig:
        """How the reference decodes beside it: as many tokens, by the parameters that nothing was changed of."""
        return RunConfig((self.method,), setting.length).with_rules(self.method, base)


def _axis(points: Iterable[tuple[Number, Number]], place: int) -> tuple[Number, ...]:
    """The values that points have on one axis, rising."""
    return tuple(sorted({point[place] for point in points}))


def _same(_own: Any, values: Values) -> Mapping[str, Any]:
    return {name: value for name, value in values.items() if name != LENGTH}


def _breadth(own: Any, values: Values) -> Mapping[str, Any]:
    """The middle one stays where it can."""
    low, high = values["b_min"], values["b_max"]
    return {"branching": (low, min(max(own.branching[1], low), high), high)}


def _fixed(_own: Any, values: Values) -> Mapping[str, Any]:
    return {"depth": values["D"], "branching": values["B"], "tau": values["tau"]}


SPACES: Mapping[str, Space] = {
    space.name: space
    for space in (
        Space(
            "thresholds",
            "tau_l is below tau_h",
            "dynatree",
            {"tau_h": _axis(THRESHOLDS, 0), "tau_l": (0.2, 0.3, 0.4, 0.5, 0.6), LENGTH: USUAL_LENGTHS},
            _same,
            lambda values: values["tau_l"] < values["tau_h"],
        ),
        Space(
            "breadth",
            "b_min is at most b_max",
            "dynatree",
            {"b_min": _axis(BREADTHS, 0), "b_max": _axis(BREADTHS, 1), LENGTH: USUAL_LENGTHS},
            _breadth,
            lambda values: values["b_min"] <= values["b_max"],
        ),
        Space(
            "depth",
            "d0 is below d_max",
            "dynatree",
            {"d0": _axis(DEPTHS, 0), "d_max": _axis(DEPTHS, 1), LENGTH: USUAL_LENGTHS},
            _same,
            lambda values: values["d0"] < values["d_max"],
        ),
        Space(
            "fixed",
            "depth, breadth and threshold of a fixed tree",
            "fixed",
            {"D": FIXED_DEPTHS, "B": BRANCHINGS, "tau": TAUS, LENGTH: (100, 200, 300, 500, 1000)},
            _fixed,
        ),
    )
}


def space_named(name: str) -> Space:
    """The space of a name; raises a ConfigError where there is none."""
    if name not in SPACES:
        raise ConfigError(f"there is no space {quoted(name)}; choose from {', '.join(SPACES)}")
    return SPACES[name]


def base_named(space: Space, preset: str | None) -> TunableParameters:
    """The parameters off the axes: the paper's, unless a preset is named; raises a ConfigError where there is none."""
    if not space.presets:
        require(preset is None, f"--preset has no effect on {space.name}; leave it out")
        usual = METHODS[space.method].own
        assert usual is not None  # noqa: S101 - a space varies a method's own parameters
        return usual
    name = "paper" if preset is None else preset
    known = ", ".join(space.presets)
    require(name in space.presets, f"--preset is {quoted(name)}; give one of {known}")
    return space.presets[name]


def axes_with(space: Space, given: Mapping[str, tuple[Number, ...]]) -> Axes:
    """The space's axes, with these values where they were given."""
    for name in given:
        require(name in space.axes, f"{space.name} has no axis {quoted(name)}; it has {', '.join(space.axes)}")
    return {name: given.get(name, usual) for name, usual in space.axes.items()}


def axis_values(space: Space, name: str, text: str) -> tuple[Number, ...]:
    """The values of an axis as they are typed, with commas between them; whole numbers where the axis has such.

    Raises:
        ConfigError: There is no such axis, or these are no numbers.
    """
    usual = axes_with(space, {name: ()}) and space.axes[name]
    whole = all(isinstance(value, int) for value in usual)
    try:
        return tuple(dict.fromkeys((int if whole else float)(part) for part in text.split(",")))
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"the axis {name} is {quoted(text)}; give {kind} with commas between them") from None
