"""The paper's experiments on given data sets: lanes, prompts, text lengths, and lengths at which figures are taken.

Knows no models: the caller makes sure that lengths fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from decoder.bench.data_sets.text_set import TextSet
from decoder.bench.paper.lanes import (
    AR,
    ASSISTANT,
    DEEPER,
    DYNATREE,
    FIXED,
    LINEAR,
    UNTUNED,
    catalogue,
    fixed_grid,
    sensitivity,
)
from decoder.bench.paper.request import Experiment, Lane, Unit
from decoder.bench.sweep.spaces import BRANCHINGS, BREADTHS, DEPTHS, FIXED_DEPTHS, TAUS, THRESHOLDS
from decoder.errors import quoted, require

NAMES = ("main", "prompt_length", "sensitivity", "fixed_trees")
WIKITEXT, PG19 = "wikitext", "PG-19"
"""Data set of all experiments but main, where it was requested; and the paper's name of the other data set."""
PG19_CHARACTERS = 1000
"""Characters of the paper's longest prompt of PG-19."""
ALL_LANES = (
    AR,
    "linear K=5",
    LINEAR,
    UNTUNED,
    "fixed D6 B2",
    "fixed D7 B2",
    FIXED,
    "no pruning",
    "phase 1",
    "phase 2",
    DYNATREE,
    "dynatree tuned",
    "alg1",
    "bestfirst",
    "streaming",
    "auto",
    "generate dynamic",
    "generate static",
    ASSISTANT,
)
"""Default lanes of main, as far as such methods are registered."""


@dataclass(frozen=True)
class Extent:
    """Extent of the measurement; the defaults are the paper's."""

    experiments: tuple[str, ...] = NAMES
    lanes: tuple[str, ...] | None = None
    """Lanes of main, by name; None: `usual_lanes`."""
    usual_lanes: tuple[str, ...] = ALL_LANES
    prompts: int = 10
    length: int = 1500
    """New tokens of each text."""
    lengths: tuple[int, ...] = (100, 200, 300, 500, 750, 1000, 1200)
    """New tokens after which figures are taken, besides those at the end."""
    most: int | None = None
    """Longest prompt, in `unit`; None: the paper's limit, in characters."""
    unit: Unit = "characters"
    usual_most: int = 800
    prompt_lengths: tuple[int, ...] = (100, 200, 300, 500, 750, 1000)
    """Limits of prompts that experiment prompt_length compares, in characters."""
    by_prompt_length: tuple[str, ...] = (AR, LINEAR, FIXED, DYNATREE)
    thresholds: tuple[tuple[float, float], ...] = THRESHOLDS
    breadths: tuple[tuple[int, int], ...] = BREADTHS
    depths: tuple[tuple[int, int], ...] = DEPTHS
    grid_depths: tuple[int, ...] = FIXED_DEPTHS
    grid_branchings: tuple[int, ...] = BRANCHINGS
    grid_taus: tuple[float, ...] = TAUS
    grid_prompts: int = 2
    warm_up: int = 2
    repeats: int = 1
    attempts: int = 3
    """Most attempts at a turn that other processes disturb."""


QUICK = Extent(
    usual_lanes=(
        AR,
        "linear K=5",
        UNTUNED,
        FIXED,
        "phase 1",
        "phase 2",
        DYNATREE,
        "bestfirst",
        "streaming",
        "auto",
        "generate dynamic",
        ASSISTANT,
    ),
    prompts=2,
    length=96,
    lengths=(24, 48, 72),
    prompt_lengths=(100, 300, 800),
    by_prompt_length=(AR, "linear K=5", FIXED, DYNATREE),
    thresholds=((0.7, 0.3), (0.8, 0.4), (0.9, 0.4), (0.9, 0.6)),
    breadths=((1, 2), (1, 3), (2, 4)),
    depths=((4, 6), (5, 8), (8, 12)),
    grid_depths=(3, 5, 8),
    grid_branchings=(2, 3),
    grid_taus=(0.02, 0.1),
    grid_prompts=1,
    warm_up=1,
    attempts=1,
)
"""All experiments and figures in a few minutes, on too few texts for conclusions."""


@dataclass(frozen=True)
class Plan:
    """Lanes and experiments of a measurement."""

    lanes: tuple[Lane, ...]
    experiments: tuple[Experiment, ...]


def require_names(extent: Extent) -> None:
    """Raises ConfigError for an unknown experiment or lane, or too small a number of prompts or tokens."""
    unknown = [name for name in extent.experiments if name not in NAMES]
    require(
        bool(extent.experiments) and not unknown,
        f"--experiments names {quoted(', '.join(unknown))}; choose from {', '.join(NAMES)}",
    )
    _rows(extent.lanes or (), catalogue(sampled=False))
    for flag, number in (("--prompts", extent.prompts), ("--max-new-tokens", extent.length)):
        require(number >= 1, f"{flag} is {number}; give 1 or more")


def plan(extent: Extent, text_sets: Sequence[TextSet], *, sampled: bool) -> Plan:
    """Plan of all experiments with their lanes.

    Args:
        extent: Extent of the measurement.
        text_sets: Data sets, one or more.
        sampled: Whether tokens are sampled.

    Raises:
        ConfigError: An experiment or lane is unknown, or a number of prompts or tokens is too small.
    """
    require_names(extent)
    rows = catalogue(sampled=sampled)
    first = next((each for each in text_sets if each.name == WIKITEXT), text_sets[0])
    made = {
        "main": lambda: _main(extent, text_sets, rows),
        "prompt_length": lambda: _prompt_length(extent, first, rows),
        "sensitivity": lambda: _sensitivity(extent, first, rows),
        "fixed_trees": lambda: _fixed_trees(extent, first, rows),
    }
    plans = [made[name]() for name in NAMES if name in extent.experiments]
    lanes = {lane.name: lane for each in plans for lane in each.lanes}
    return Plan(tuple(lanes.values()), tuple(experiment for each in plans for experiment in each.experiments))


def _main(extent: Extent, text_sets: Sequence[TextSet], rows: Mapping[str, Lane]) -> Plan:
    """Experiment main: every lane on every data set; shorter lengths are cuts of the same texts."""
    usual = [name for name in extent.usual_lanes if name in rows]
    by_set = {each.name: _for_texts(each, _rows(extent.lanes or usual, rows), rows) for each in text_sets}
    return Plan(
        tuple(lane for each in by_set.values() for lane in each),
        tuple(_experiment("main", extent, each, by_set[each.name], lengths=_lengths(extent)) for each in text_sets),
    )


def _prompt_length(extent: Extent, texts: TextSet, rows: Mapping[str, Lane]) -> Plan:
    """Experiment prompt_length: some lanes on longer and longer prefixes of the same prompts."""
    lanes = _rows(extent.lanes or extent.by_prompt_length, rows)
    of_length = replace(extent, unit="characters")
    experiments = [
        _experiment("prompt_length", replace(of_length, most=most), texts, lanes, lengths=_lengths(extent))
        for most in extent.prompt_lengths
    ]
    return Plan(tuple(lanes), tuple(experiments))


def _sensitivity(extent: Extent, texts: TextSet, rows: Mapping[str, Lane]) -> Plan:
    """Experiment sensitivity: DynaTree's thresholds, breadths and depths, beside plain decoding and a fixed tree."""
    lanes = (rows[AR], rows[UNTUNED], *sensitivity(extent.thresholds, extent.breadths, extent.depths))
    return Plan(lanes, (_experiment("sensitivity", extent, texts, lanes),))


def _fixed_trees(extent: Extent, texts: TextSet, rows: Mapping[str, Lane]) -> Plan:
    """Experiment fixed_trees: many fixed trees on few prompts."""
    lanes = (rows[AR], *fixed_grid(extent.grid_depths, extent.grid_branchings, extent.grid_taus))
    few = replace(extent, prompts=min(extent.prompts, extent.grid_prompts))
    return Plan(lanes, (_experiment("fixed_trees", few, texts, lanes, lengths=_lengths(extent)),))


def _experiment(
    name: str, extent: Extent, texts: TextSet, lanes: Sequence[Lane], *, lengths: tuple[int, ...] = ()
) -> Experiment:
    usual = PG19_CHARACTERS if texts.stands_for == PG19 else extent.usual_most
    return Experiment(
        name=name,
        data_set=texts.name,
        most=extent.most or usual,
        unit=extent.unit,
        prompts=min(extent.prompts, len(texts.prompts)),
        lanes=tuple(lane.name for lane in lanes),
        lengths=lengths or (extent.length,),
        repeats=extent.repeats,
    )


def _lengths(extent: Extent) -> tuple[int, ...]:
    return (*(length for length in extent.lengths if length < extent.length), extent.length)


def _rows(names: Sequence[str], rows: Mapping[str, Lane]) -> list[Lane]:
    """Lanes of these names, plain decoding first."""
    unknown = [name for name in names if name not in rows]
    require(not unknown, f"--lanes names {quoted(', '.join(unknown))}; choose from {', '.join(rows)}")
    return [rows[name] for name in dict.fromkeys((AR, *names))]


def _for_texts(texts: TextSet, lanes: Sequence[Lane], rows: Mapping[str, Lane]) -> list[Lane]:
    """Lanes for a data set: on PG-19 the authors' DynaTree grows one level deeper, which the paper does not say."""
    deepened = [
        (lane, rows[DEEPER]) if lane.name == DYNATREE and texts.stands_for == PG19 else (lane,) for lane in lanes
    ]
    return list({lane.name: lane for these in deepened for lane in these}.values())
