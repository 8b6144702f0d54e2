"""The paper's experiments on given data sets: their lanes, prompts and text lengths.

This module does not depend on models, so the caller must ensure that the lengths fit into the models' context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from decoder.errors import quoted, require
from dynatui.lab.bench.data_sets.text_set import TextSet
from dynatui.lab.bench.paper.lanes import (
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
from dynatui.lab.bench.paper.request import Lane, PaperExperiment, Unit
from dynatui.lab.bench.sweep.spaces import BRANCHINGS, BREADTHS, DEPTHS, FIXED_DEPTHS, TAUS, THRESHOLDS

NAMES = ("main", "prompt_length", "sensitivity", "fixed_trees")
WIKITEXT, PG19 = "wikitext", "PG-19"
"""`WIKITEXT`: name of the data set that all experiments except `main` use, if it is among the given data sets. `PG19`:
the paper's name for its second data set.
"""
PG19_CHARACTERS = 1000
"""The paper's maximum prompt length on PG-19, in characters."""
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
"""Default lanes of the experiment `main`; lanes of methods that are not registered are left out."""


@dataclass(frozen=True)
class Extent:
    """Size of the measurement: experiments, lanes, and numbers of prompts and tokens.

    The default values are those of the paper.
    """

    experiments: tuple[str, ...] = NAMES
    lanes: tuple[str, ...] | None = None
    """Names of the lanes in the experiment `main`; None selects `usual_lanes`."""
    usual_lanes: tuple[str, ...] = ALL_LANES
    prompts: int = 10
    length: int = 1500
    """Number of new tokens in each text."""
    lengths: tuple[int, ...] = (100, 200, 300, 500, 750, 1000, 1200)
    """Shorter text lengths, in new tokens, at which results are also recorded."""
    most: int | None = None
    """Maximum prompt length, in `unit`; None selects the paper's limit, in characters."""
    unit: Unit = "characters"
    usual_most: int = 800
    prompt_lengths: tuple[int, ...] = (100, 200, 300, 500, 750, 1000)
    """Maximum prompt lengths that the experiment `prompt_length` compares, in characters."""
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
    """Maximum number of attempts to decode a text when other processes disturb the timing."""


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
"""Extent for a trial run of a few minutes: all experiments and figures, but too few texts for conclusions."""


@dataclass(frozen=True)
class Plan:
    """Lanes and experiments of a measurement."""

    lanes: tuple[Lane, ...]
    experiments: tuple[PaperExperiment, ...]


def require_names(extent: Extent) -> None:
    """Raises ConfigError if an experiment or lane is unknown, or the number of prompts or tokens is below 1."""
    unknown = [name for name in extent.experiments if name not in NAMES]
    require(
        bool(extent.experiments) and not unknown,
        f"--experiments names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(NAMES)}",
    )
    _rows(extent.lanes or (), catalogue(sampled=False))
    for flag, number in (("--prompts", extent.prompts), ("--max-new-tokens", extent.length)):
        require(number >= 1, f"{flag} is {number}; give 1 or more")


def plan(extent: Extent, text_sets: Sequence[TextSet], *, sampled: bool) -> Plan:
    """Plan of all experiments with their lanes.

    Args:
        extent: Size of the measurement.
        text_sets: Data sets, at least one.
        sampled: Whether tokens are sampled; otherwise, decoding is greedy.

    Raises:
        ConfigError: An experiment or lane is unknown, or the number of prompts or tokens is below 1.
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
    """Experiment `main`: every lane on every data set; results at shorter lengths come from the same texts."""
    usual = [name for name in extent.usual_lanes if name in rows]
    by_set = {each.name: _for_texts(each, _rows(extent.lanes or usual, rows), rows) for each in text_sets}
    return Plan(
        tuple(lane for each in by_set.values() for lane in each),
        tuple(_experiment("main", extent, each, by_set[each.name], lengths=_lengths(extent)) for each in text_sets),
    )


def _prompt_length(extent: Extent, texts: TextSet, rows: Mapping[str, Lane]) -> Plan:
    """Experiment `prompt_length`: a few lanes on the same prompts, which are cut to several maximum lengths."""
    lanes = _rows(extent.lanes or extent.by_prompt_length, rows)
    of_length = replace(extent, unit="characters")
    experiments = [
        _experiment("prompt_length", replace(of_length, most=most), texts, lanes, lengths=_lengths(extent))
        for most in extent.prompt_lengths
    ]
    return Plan(tuple(lanes), tuple(experiments))


def _sensitivity(extent: Extent, texts: TextSet, rows: Mapping[str, Lane]) -> Plan:
    """Experiment `sensitivity`: DynaTree with various thresholds, breadths and depths; plain decoding; a fixed tree."""
    lanes = (rows[AR], rows[UNTUNED], *sensitivity(extent.thresholds, extent.breadths, extent.depths))
    return Plan(lanes, (_experiment("sensitivity", extent, texts, lanes),))


def _fixed_trees(extent: Extent, texts: TextSet, rows: Mapping[str, Lane]) -> Plan:
    """Experiment `fixed_trees`: many fixed trees on few prompts."""
    lanes = (rows[AR], *fixed_grid(extent.grid_depths, extent.grid_branchings, extent.grid_taus))
    few = replace(extent, prompts=min(extent.prompts, extent.grid_prompts))
    return Plan(lanes, (_experiment("fixed_trees", few, texts, lanes, lengths=_lengths(extent)),))


def _experiment(
    name: str, extent: Extent, texts: TextSet, lanes: Sequence[Lane], *, lengths: tuple[int, ...] = ()
) -> PaperExperiment:
    usual = PG19_CHARACTERS if texts.stands_for == PG19 else extent.usual_most
    return PaperExperiment(
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
    """Lanes with these names, preceded by plain decoding."""
    unknown = [name for name in names if name not in rows]
    require(
        not unknown,
        f"--lanes names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(rows)}",
    )
    return [rows[name] for name in dict.fromkeys((AR, *names))]


def _for_texts(texts: TextSet, lanes: Sequence[Lane], rows: Mapping[str, Lane]) -> list[Lane]:
    """Lanes for a data set. PG-19 also gets DynaTree with D_max=9, which the authors used but did not report."""
    deepened = [
        (lane, rows[DEEPER]) if lane.name == DYNATREE and texts.stands_for == PG19 else (lane,) for lane in lanes
    ]
    return list({lane.name: lane for these in deepened for lane in these}.values())
