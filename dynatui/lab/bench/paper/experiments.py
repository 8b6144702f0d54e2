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
    *(AR, "linear K=5", LINEAR, UNTUNED, "fixed D6 B2", "fixed D7 B2", FIXED, "no pruning", "phase 1", "phase 2"),
    *(DYNATREE, "dynatree tuned", "alg1", "bestfirst", "streaming", "auto", "generate dynamic", "generate static"),
    ASSISTANT,
)
"""Default lanes of the experiment `main`; lanes of methods that are not registered are left out."""


@dataclass(frozen=True)
class Extent:
    """Size of the measurement; the default values are those of the paper."""

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
    varied: tuple[Lane, ...] = sensitivity(THRESHOLDS, BREADTHS, DEPTHS)
    """Settings of DynaTree that the experiment `sensitivity` compares."""
    grid: tuple[Lane, ...] = fixed_grid(FIXED_DEPTHS, BRANCHINGS, TAUS)
    """Settings that the experiment `fixed_trees` compares."""
    grid_prompts: int = 2
    warm_up: int = 2
    repeats: int = 1
    attempts: int = 3
    """Maximum number of attempts to decode a text when other processes disturb the timing."""


QUICK = Extent(
    usual_lanes=(
        *(AR, "linear K=5", UNTUNED, FIXED, "phase 1", "phase 2", DYNATREE, "bestfirst", "streaming", "auto"),
        *("generate dynamic", ASSISTANT),
    ),
    prompts=2,
    length=96,
    lengths=(24, 48, 72),
    prompt_lengths=(100, 300, 800),
    by_prompt_length=(AR, "linear K=5", FIXED, DYNATREE),
    varied=sensitivity(
        thresholds=((0.7, 0.3), (0.8, 0.4), (0.9, 0.4), (0.9, 0.6)),
        breadths=((1, 2), (1, 3), (2, 4)),
        depths=((4, 6), (5, 8), (8, 12)),
    ),
    grid=fixed_grid(depths=(3, 5, 8), branchings=(2, 3), taus=(0.02, 0.1)),
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
    """Plan of all experiments on at least one data set; `sampled` says that decoding is not greedy.

    Raises:
        ConfigError: An experiment or lane is unknown, or the number of prompts or tokens is below 1.
    """
    require_names(extent)
    rows = catalogue(sampled=sampled)
    first = next((each for each in text_sets if each.name == WIKITEXT), text_sets[0])
    lengths = (*(length for length in extent.lengths if length < extent.length), extent.length)
    of_main = _rows(extent.lanes or [name for name in extent.usual_lanes if name in rows], rows)
    by_prompt_length = _rows(extent.lanes or extent.by_prompt_length, rows)
    of_length = replace(extent, unit="characters")
    few = replace(extent, prompts=min(extent.prompts, extent.grid_prompts))
    planned = {
        "main": [_planned("main", extent, texts, _for_texts(texts, of_main, rows), lengths) for texts in text_sets],
        "prompt_length": [
            _planned("prompt_length", replace(of_length, most=most), first, by_prompt_length, lengths)
            for most in extent.prompt_lengths
        ],
        "sensitivity": [
            _planned("sensitivity", extent, first, [rows[AR], rows[UNTUNED], *extent.varied], lengths[-1:])
        ],
        "fixed_trees": [_planned("fixed_trees", few, first, [rows[AR], *extent.grid], lengths)],
    }
    chosen = [each for name in NAMES if name in extent.experiments for each in planned[name]]
    lanes = {lane.name: lane for each in chosen for lane in each.lanes}
    return Plan(tuple(lanes.values()), tuple(experiment for each in chosen for experiment in each.experiments))


def _planned(name: str, extent: Extent, texts: TextSet, lanes: Sequence[Lane], lengths: tuple[int, ...]) -> Plan:
    """One experiment with its lanes; results at shorter lengths come from the same texts."""
    experiment = PaperExperiment(
        name=name,
        data_set=texts.name,
        most=extent.most or (PG19_CHARACTERS if texts.stands_for == PG19 else extent.usual_most),
        unit=extent.unit,
        prompts=min(extent.prompts, len(texts.prompts)),
        lanes=tuple(lane.name for lane in lanes),
        lengths=lengths,
        repeats=extent.repeats,
    )
    return Plan(tuple(lanes), (experiment,))


def _rows(names: Sequence[str], rows: Mapping[str, Lane]) -> list[Lane]:
    """Lanes with these names, preceded by plain decoding."""
    unknown = [name for name in names if name not in rows]
    require(not unknown, f"--lanes names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(rows)}")
    return [rows[name] for name in dict.fromkeys((AR, *names))]


def _for_texts(texts: TextSet, lanes: Sequence[Lane], rows: Mapping[str, Lane]) -> list[Lane]:
    """Lanes for a data set. PG-19 also gets DynaTree with D_max=9, which the authors used but did not report."""
    deepened = [
        (lane, rows[DEEPER]) if lane.name == DYNATREE and texts.stands_for == PG19 else (lane,) for lane in lanes
    ]
    return list({lane.name: lane for these in deepened for lane in these}.values())
