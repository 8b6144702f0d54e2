"""Named grids of settings, their shards, and the request that identifies a sweep; does not import torch."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from decoder.errors import ConfigError, quoted, require
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from dynatui.lab.bench.on_pair import OnPair, PairRequest, pair_names

if TYPE_CHECKING:
    from decoder.models.pair import Pair


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
"""Pairs (tau_h, tau_l) in figure 6 of the paper."""
BREADTHS = ((1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 5))
"""Pairs (B_min, B_max) in figure 6 of the paper, with B_mid = max(2, B_min)."""
DEPTHS = ((4, 6), (5, 7), (5, 8), (6, 8), (6, 10), (7, 10), (8, 12))
"""Pairs (D0, D_max) in figure 6 of the paper."""
FIXED_DEPTHS, BRANCHINGS, TAUS = (3, 4, 5, 6, 7, 8), (2, 3, 4), (0.01, 0.02, 0.03, 0.05, 0.1)
"""Depths D, branchings B and thresholds tau in the paper's sweep of fixed trees."""
MOST_SETTINGS = 10_000
MOST_SHARDS = 1000


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
    about: str
    method: str
    axes: Mapping[str, tuple[Number, ...]]
    """Default values by axis. The first two axes are the rows and columns of heat maps; the last axis is `LENGTH`."""
    changes: Callable[[Any, Values], Mapping[str, Any]]
    """(base parameters, values of a setting) -> parameters that replace base parameters."""
    possible: Callable[[Values], bool] = lambda _: True

    @property
    def presets(self) -> Mapping[str, TunableParameters]:
        return METHODS[self.method].presets

    def grid(self, axes: Mapping[str, tuple[Number, ...]]) -> tuple[GridPoint, ...]:
        """All valid settings, in an order in which the values of the last axis change fastest."""
        count = math.prod(map(len, axes.values()))
        require(
            count <= MOST_SETTINGS,
            f"the grid has {count} settings, which are too many; give axes with {MOST_SETTINGS} settings or fewer",
        )
        points = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
        settings = tuple(GridPoint(point) for point in points if self.possible(point))
        require(bool(settings), f"no setting of these axes is possible; choose values so that {self.about}")
        return settings

    def config(self, base: TunableParameters, setting: GridPoint) -> RunConfig:
        return self.plain_config(base, setting).with_rules(self.method, self.rules(base, setting.values))

    def rules(self, base: TunableParameters, values: Values) -> TunableParameters:
        """The base parameters with the given values on the axes; raises ConfigError if a value is out of bounds."""
        return replace(base, **self.changes(base, values))

    def plain_config(self, base: TunableParameters, setting: GridPoint) -> RunConfig:
        """Run configuration of the reference: unchanged base parameters, with as many new tokens as the setting."""
        return RunConfig((self.method,), setting.length).with_rules(self.method, base)


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
        Space(
            "chain",
            "length and least probability of a chain",
            "linear",
            {"k": (2, 3, 4, 5, 8), "p_min": (0.0, 0.2, 0.4, 0.6, 0.8), LENGTH: USUAL_LENGTHS},
            _same,
        ),
        Space(
            "eagle2",
            "levels, beam and size of EAGLE-2's tree",
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


def base_named(space: Space, preset: str | None) -> TunableParameters:
    """Parameters of the preset, or of the paper if `preset` is None."""
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
    """Values of each axis: the given values, or else the default values."""
    for name in given:
        require(
            name in space.axes,
            f"the space {space.name} has no axis {quoted(name)}; choose from {', '.join(space.axes)}",
        )
    return {name: given.get(name, usual) for name, usual in space.axes.items()}


def axis_values(space: Space, name: str, text: str) -> tuple[Number, ...]:
    """Values of an axis, from a comma-separated list; integers if the axis's default values are integers."""
    usual = axes_with(space, {name: ()}) and space.axes[name]
    whole = all(isinstance(value, int) for value in usual)
    try:
        return tuple(dict.fromkeys((int if whole else float)(part) for part in text.split(",")))
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(
            f"the axis {name} is {quoted(text)}, which is invalid; give {kind} with commas between them"
        ) from None


class SweepRequest(PairRequest, frozen=True, kw_only=True):
    """Everything that determines the results of a sweep."""

    space: str
    axes: Axes
    reference: dict[str, Any]
    """Base parameters of the method. The reference uses all of them; a setting replaces the parameters on the axes."""
    prompts: tuple[AnyPrompt, ...]
    repeats: int

    def __post_init__(self) -> None:
        require(self.repeats >= 1, f"--repeats is {self.repeats}; give 1 or more")

    @property
    def settings(self) -> tuple[GridPoint, ...]:
        return space_named(self.space).grid(self.axes)


@dataclass(frozen=True)
class OnSettings(OnPair):
    """Options of a sweep before models are loaded; `request` adds the names of the loaded pair."""

    space: str
    axes: Axes
    prompts: tuple[AnyPrompt, ...]
    preset: str | None = None
    """Name of the preset for parameters that the sweep does not vary; None selects the paper's values."""
    repeats: int = 1
    seed: int = 0

    @property
    def base(self) -> TunableParameters:
        return base_named(space_named(self.space), self.preset)

    def request(self, pair: "Pair | None" = None) -> SweepRequest:
        """Request of the sweep for a loaded pair; without a pair, the call only validates the options."""
        request = SweepRequest(
            space=self.space,
            axes=self.axes,
            reference=msgspec.to_builtins(self.base),
            **pair_names(pair),
            prompts=self.prompts,
            repeats=self.repeats,
            seed=self.seed,
        )
        for setting in request.settings:
            space_named(self.space).config(self.base, setting)
        return request
