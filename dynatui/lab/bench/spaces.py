"""Named grids of settings, their shards, and the request that identifies a sweep; does not import torch."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any, TypeAlias

import msgspec

from decoder.errors import ConfigError, quoted, require
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.prompt import AnyPrompt
from decoder.run.config import RunConfig
from dynatui.lab.bench import PairRequest

Number: TypeAlias = int | float
Values: TypeAlias = Mapping[str, Number]
Axes: TypeAlias = dict[str, tuple[Number, ...]]
LENGTH = "T"
"""Name of the axis that every grid has: the number of new tokens per text."""
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
"""Pairs (tau_h, tau_l) in figure 6 of the DynaTree paper."""
BREADTHS = ((1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 5))
"""Pairs (B_min, B_max) in that figure, with B_mid = max(2, B_min)."""
DEPTHS = ((4, 6), (5, 7), (5, 8), (6, 8), (6, 10), (7, 10), (8, 12))
"""Pairs (D0, D_max), base and largest depth, in that figure."""
FIXED_DEPTHS, BRANCHINGS, TAUS = (3, 4, 5, 6, 7, 8), (2, 3, 4), (0.01, 0.02, 0.03, 0.05, 0.1)
"""Depths D, branchings B and thresholds tau in the paper's sweep of fixed trees."""
MOST_SETTINGS = 10_000
MOST_SHARDS = 1000
PAPER = "paper"


class GridPoint(msgspec.Struct, frozen=True):
    """One point of a grid, with a value for each axis."""

    values: dict[str, Number]

    @property
    def key(self) -> str:
        """Unique name of the setting within its grid, such as "tau_h=0.9 tau_l=0.4 T=256"."""
        return " ".join(f"{name}={value!r}" for name, value in self.values.items())

    @property
    def length(self) -> int:
        return int(self.values[LENGTH])


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a sweep, with a log of its own; parts are numbered from 1."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        require(
            1 <= self.number <= self.count <= MOST_SHARDS,
            f"--shard is {self.number}/{self.count}; give I/N with I from 1 to N, and N up to {MOST_SHARDS}",
        )

    @property
    def name(self) -> str:
        """Name of the shard's log file, without the suffix."""
        return f"sweep-{self.number}-of-{self.count}"

    def of(self, settings: Sequence[GridPoint], seed: int) -> list[GridPoint]:
        """The shard's settings, in random order so that the remaining time can be predicted from the elapsed time."""
        return Random(seed).sample(settings, len(settings))[self.number - 1 :: self.count]


@dataclass(frozen=True)
class Space:
    """Named grid over parameters of one method, and the text length."""

    name: str
    method: str
    axes: Axes
    """Default values by axis. The first two axes are the rows and columns of heat maps; the last axis is `LENGTH`."""
    changes: Callable[[Any, Values], Mapping[str, Any]]
    """(base parameters, values of a setting) -> parameters that replace base parameters."""
    possible: Callable[[Values], bool] = lambda _: True
    condition: str = ""
    """Clause that says which settings are possible, for an error message."""

    def axes_with(self, given: Mapping[str, str]) -> Axes:
        """Values of each axis: those of the comma-separated list in `given`, or else the default values."""
        for name in given:
            require(
                name in self.axes,
                f"the space {self.name} has no axis {quoted(name)}; choose from {', '.join(self.axes)}",
            )
        return {
            name: _numbers(name, given[name], usual) if name in given else usual for name, usual in self.axes.items()
        }

    def base(self, preset: str | None) -> TunableParameters:
        """Parameters of the preset, or of the paper if `preset` is None."""
        method = METHODS[self.method]
        require(preset is None or bool(method.presets), f"--preset has no effect on {self.name}; leave it out")
        known: Mapping[str, Any] = method.presets or {PAPER: method.own}
        name = PAPER if preset is None else preset
        require(name in known, f"--preset is {quoted(name)}; give one of {', '.join(known)}")
        base: TunableParameters = known[name]
        return base

    def grid(self, axes: Axes) -> tuple[GridPoint, ...]:
        """All valid settings, in an order in which the values of the last axis change fastest."""
        count = math.prod(map(len, axes.values()))
        require(
            count <= MOST_SETTINGS,
            f"the grid has {count} settings, which are too many; give axes with {MOST_SETTINGS} settings or fewer",
        )
        points = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
        settings = tuple(GridPoint(point) for point in points if self.possible(point))
        require(bool(settings), f"no setting of these axes is possible; choose values so that {self.condition}")
        return settings

    def rules(self, base: TunableParameters, values: Values) -> TunableParameters:
        """The base parameters with the given values on the axes; raises ConfigError if a value is out of bounds."""
        return replace(base, **self.changes(base, values))

    def config(self, rules: TunableParameters, length: int) -> RunConfig:
        return RunConfig((self.method,), length).with_rules(self.method, rules)


def _numbers(axis: str, listed: str, usual: tuple[Number, ...]) -> tuple[Number, ...]:
    """Values in a comma-separated list; whole numbers if the axis's default values are whole numbers."""
    whole = all(isinstance(value, int) for value in usual)
    try:
        return tuple(dict.fromkeys((int if whole else float)(part) for part in listed.split(",")))
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(
            f"the axis {axis} is {quoted(listed)}, which is invalid; give {kind} with commas between them"
        ) from None


def _axis(points: Iterable[tuple[Number, Number]], place: int) -> tuple[Number, ...]:
    """Distinct first (`place` 0) or second (`place` 1) values of the pairs, in ascending order."""
    return tuple(sorted({point[place] for point in points}))


def _same(_own: Any, values: Values) -> Mapping[str, Any]:
    return {name: value for name, value in values.items() if name != LENGTH}


def _breadth(own: Any, values: Values) -> Mapping[str, Any]:
    """Branching (b_min, b_mid, b_max) with a new minimum and maximum; b_mid is clamped between them."""
    low, high = values["b_min"], values["b_max"]
    return {"branching": (low, min(max(own.branching[1], low), high), high)}


def _fixed(_own: Any, values: Values) -> Mapping[str, Any]:
    return {"depth": values["D"], "branching": values["B"], "tau": values["tau"]}


SPACES: Mapping[str, Space] = {
    space.name: space
    for space in (
        Space(
            "thresholds",
            "dynatree",
            {"tau_h": _axis(THRESHOLDS, 0), "tau_l": (0.2, 0.3, 0.4, 0.5, 0.6), LENGTH: USUAL_LENGTHS},
            _same,
            lambda values: values["tau_l"] < values["tau_h"],
            "tau_l is below tau_h",
        ),
        Space(
            "breadth",
            "dynatree",
            {"b_min": _axis(BREADTHS, 0), "b_max": _axis(BREADTHS, 1), LENGTH: USUAL_LENGTHS},
            _breadth,
            lambda values: values["b_min"] <= values["b_max"],
            "b_min is at most b_max",
        ),
        Space(
            "depth",
            "dynatree",
            {"d0": _axis(DEPTHS, 0), "d_max": _axis(DEPTHS, 1), LENGTH: USUAL_LENGTHS},
            _same,
            lambda values: values["d0"] < values["d_max"],
            "d0 is below d_max",
        ),
        Space(
            "fixed",
            "fixed",
            {"D": FIXED_DEPTHS, "B": BRANCHINGS, "tau": TAUS, LENGTH: (100, 200, 300, 500, 1000)},
            _fixed,
        ),
        Space(
            "chain",
            "linear",
            {"k": (2, 3, 4, 5, 8), "p_min": (0.0, 0.2, 0.4, 0.6, 0.8), LENGTH: USUAL_LENGTHS},
            _same,
        ),
        Space(
            "eagle2",
            "eagle2",
            {"steps": (2, 3, 5, 7), "draft_tokens": (4, 8, 16, 32), "topk": (2, 4, 8), LENGTH: USUAL_LENGTHS},
            _same,
        ),
    )
}


def space_named(name: str) -> Space:
    if name not in SPACES:
        raise ConfigError(f"there is no space {quoted(name)}; choose from {', '.join(SPACES)}")
    return SPACES[name]


class SweepRequest(PairRequest, frozen=True, kw_only=True):
    """Everything that determines the results of a sweep."""

    space: str
    axes: Axes
    reference: dict[str, Any]
    """Base parameters of the method. The reference uses all of them; a setting replaces the parameters on the axes."""
    prompts: tuple[AnyPrompt, ...]
    repeats: int

    @property
    def settings(self) -> tuple[GridPoint, ...]:
        return SPACES[self.space].grid(self.axes)

    def configs(self, setting: GridPoint) -> tuple[RunConfig, RunConfig]:
        """Configurations of the reference and of a setting; raises ConfigError if a value is out of bounds."""
        space = SPACES[self.space]
        base: TunableParameters = msgspec.convert(self.reference, type(space.base(None)))
        return space.config(base, setting.length), space.config(space.rules(base, setting.values), setting.length)
