"""The paper's experiments on given data sets, with their lanes (methods with parameters), prompts and text lengths."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import msgspec

from decoder.errors import quoted, require
from decoder.knobs import RulesName, TunableParameters
from decoder.methods import METHODS
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from dynatui.lab.bench.baselines import ASSISTED, CACHES
from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper.records import PaperExperiment, PaperLane, Unit
from dynatui.lab.bench.spaces import BRANCHINGS, BREADTHS, DEPTHS, FIXED_DEPTHS, SPACES, TAUS, THRESHOLDS

AR = "ar"
LINEAR = "linear K=8"
FIXED = "fixed D8 B3"
UNTUNED = "fixed D5 B2"
DYNATREE = "phase 3"
DEEPER = "phase 3 D_max=9"
ASSISTANT = "assisted 20/.4"
"""Lane of assisted generation in transformers with its default parameters."""

PAPER = DynaTree()
SENSITIVE = replace(PAPER, tau_h=0.8, tau_l=0.4)
"""Base parameters of the paper's sweeps of breadth and depth."""
GRID_TREE = Fixed(n_max=128)
"""Base parameters of the paper's sweep of fixed trees."""


def catalogue(*, sampled: bool) -> dict[str, PaperLane]:
    """All lanes that the experiment `main` can have, by name, in the order of the tables' rows.

    `sampled`: decoding is not greedy, so texts of transformers may differ, since it draws other random numbers.
    """
    lanes = (*_chains_and_trees(), *_of_the_registry(), *_of_transformers(sampled=sampled))
    return {lane.name: lane for lane in lanes}


def fixed_grid(depths: Iterable[int], branchings: Iterable[int], taus: Iterable[float]) -> tuple[PaperLane, ...]:
    """Lanes of the paper's sweep of fixed trees: every combination of depth, branching and threshold."""
    return tuple(
        _varied(f"fixed D{depth} B{branching} tau={tau:g}", "fixed", GRID_TREE, D=depth, B=branching, tau=tau)
        for depth, branching, tau in product(depths, branchings, taus)
    )


def sensitivity(
    thresholds: Iterable[tuple[float, float]], breadths: Iterable[tuple[int, int]], depths: Iterable[tuple[int, int]]
) -> tuple[PaperLane, ...]:
    """Lanes of DynaTree for the paper's sweeps of thresholds, breadths and depths; each lane belongs to one sweep."""
    return (
        *(
            _varied(f"tau_h={sure:g} tau_l={unsure:g}", "thresholds", PAPER, tau_h=sure, tau_l=unsure)
            for sure, unsure in thresholds
        ),
        *(
            _varied(f"branching {low},{max(low, 2)},{high}", "breadth", SENSITIVE, b_min=low, b_max=high)
            for low, high in breadths
        ),
        *(_varied(f"d0={base} d_max={most}", "depth", SENSITIVE, d0=float(base), d_max=most) for base, most in depths),
    )


def rules(lane: PaperLane) -> tuple[RulesName, TunableParameters] | None:
    """Name of the parameter set of a registered lane, and its values; None if the method has no parameters."""
    name = METHODS[lane.method].rules
    usual = METHODS[name].own if name else None
    return (name, msgspec.convert(lane.parameters, type(usual))) if name and usual else None


def paper_depth(lane: PaperLane) -> int | None:
    """Number of tokens per round by which the paper's acceptance formula divides; None for lanes without such a number.

    For a chain, this number is K, which does not count the bonus token. For a tree, it is D + 2, which counts the
    drafted root and the bonus token; D is the base depth, or the tree's depth if depth is not adaptive. The paper's
    formula is kept, although fixed trees and phase 1 commit at most D + 1 tokens here (D drafted levels and the bonus
    token), and D + 2 tokens in the authors' code.
    """
    match lane:
        case PaperLane(method="linear" | "streaming", parameters={"k": int(length)}):
            return length
        case PaperLane(method="fixed", parameters={"depth": int(depth)}):
            return depth + 2
        case PaperLane(method="dynatree", parameters={"rho_deep": 0, "d_max": int(deepest)}):
            return deepest + 2
        case PaperLane(method="dynatree" | "alg1", parameters={"d0": int(base) | float(base)}):
            return round(base) + 2
        case _:
            return None


def _chains_and_trees() -> Iterator[PaperLane]:
    yield PaperLane(name=AR, method=AR, family=AR, parameters={}, paper_name="AR")
    for length in range(4, 9):
        yield _own(f"linear K={length}", "linear", "linear", Linear(length), f"Linear K{length}")
    for depth, branching, tau in ((5, 2, 0.05), (6, 2, 0.05), (7, 2, 0.05), (8, 3, 0.1)):
        tree = Fixed(depth, branching, tau)
        yield _own(f"fixed D{depth} B{branching}", "fixed", "fixed", tree, f"Fixed D{depth}B{branching}")
    yield _own("no pruning", "fixed", "fixed", Fixed(5, 2, tau=0.0, n_max=512))
    # without adaptive depth, d0 has no effect, but d0 must still be below d_max
    breadth = replace(PAPER, d0=4.0, d_max=5, rho_stop=0.0, rho_deep=0.0, history=False)
    yield _own("phase 1", "dynatree", "dynatree", breadth, "Phase 1")
    yield _own("phase 2", "dynatree", "dynatree", replace(PAPER, history=False), "Phase 2")
    yield _own(DYNATREE, "dynatree", "dynatree", PAPER, "DynaTree")
    yield _own(DEEPER, "dynatree", "dynatree", replace(PAPER, d_max=9))
    yield _own("dynatree tuned", "dynatree", "dynatree", PRESETS["tuned"])
    yield _own("alg1", "alg1", "alg1", PAPER)


def _of_the_registry() -> Iterator[PaperLane]:
    """Lanes of further methods with their default parameters, if they are registered."""
    for name, paper_name in (("bestfirst", None), ("streaming", "Streaming"), ("auto", None)):
        if (method := METHODS.get(name)) and method.own is not None:
            yield _own(name, name, name, method.own, paper_name, own_text=method.same_until is not None)


def _of_transformers(*, sampled: bool) -> Iterator[PaperLane]:
    settings: dict[str, Mapping[str, Any]] = {f"generate {cache}": {"cache_implementation": cache} for cache in CACHES}
    settings |= {f"assisted {name}": drafting for name, drafting in ASSISTED.items()}
    for name, parameters in settings.items():
        method = name.partition(" ")[0]
        paper_name = "HF assisted" if name == ASSISTANT else None
        yield PaperLane(
            name=name, method=method, family="hf", parameters=dict(parameters), paper_name=paper_name, own_text=sampled
        )


def _varied(name: str, space: str, base: TunableParameters, **values: float) -> PaperLane:
    """Lane for one setting of a sweep: base parameters, with `values` in place of some of them."""
    method = SPACES[space].method
    return _own(name, method, method, SPACES[space].rules(base, values))


def _own(
    name: str,
    method: str,
    family: str,
    rules: TunableParameters,
    paper_name: str | None = None,
    *,
    own_text: bool = False,
) -> PaperLane:
    """Lane of a registered method; its parameters have JSON types, so that the lane equals its copy from a log."""
    parameters = msgspec.json.decode(msgspec.json.encode(rules))
    return PaperLane(
        name=name, method=method, family=family, parameters=parameters, paper_name=paper_name, own_text=own_text
    )


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
    """Names of the lanes in `main` and `prompt_length`; None selects `usual_lanes` and `by_prompt_length`."""
    usual_lanes: tuple[str, ...] = ALL_LANES
    prompts: int = 10
    length: int = 1500
    """Number of new tokens in each text."""
    lengths: tuple[int, ...] = (100, 200, 300, 500, 750, 1000, 1200)
    """Shorter text lengths, in new tokens, for which results are also recorded."""
    most: int | None = None
    """Maximum prompt length, in `unit`; None selects the paper's limit, in characters."""
    unit: Unit = "characters"
    usual_most: int = 800
    prompt_lengths: tuple[int, ...] = (100, 200, 300, 500, 750, 1000)
    """Maximum prompt lengths that the experiment `prompt_length` compares, in characters."""
    by_prompt_length: tuple[str, ...] = (AR, LINEAR, FIXED, DYNATREE)
    varied: tuple[PaperLane, ...] = sensitivity(THRESHOLDS, BREADTHS, DEPTHS)
    """Settings of DynaTree that the experiment `sensitivity` compares."""
    grid: tuple[PaperLane, ...] = fixed_grid(FIXED_DEPTHS, BRANCHINGS, TAUS)
    """Settings that the experiment `fixed_trees` compares."""
    grid_prompts: int = 2
    warm_up: int = 2
    repeats: int = 1
    attempts: int = 3
    """Maximum number of attempts to decode a text if other processes disturb the timing."""


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
class MeasurementPlan:
    """Lanes and experiments of a measurement."""

    lanes: tuple[PaperLane, ...]
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


def plan(extent: Extent, text_sets: Sequence[TextSet], *, sampled: bool) -> MeasurementPlan:
    """Plan of the experiments in `extent`; `text_sets` is not empty, and `sampled` says that decoding is not greedy."""
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
    return MeasurementPlan(
        tuple(lanes.values()), tuple(experiment for each in chosen for experiment in each.experiments)
    )


def _planned(
    name: str, extent: Extent, texts: TextSet, lanes: Sequence[PaperLane], lengths: tuple[int, ...]
) -> MeasurementPlan:
    """One experiment with its lanes; results at all `lengths` come from the same texts."""
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
    return MeasurementPlan(tuple(lanes), (experiment,))


def _rows(names: Sequence[str], rows: Mapping[str, PaperLane]) -> list[PaperLane]:
    """Lanes with these names, preceded by plain decoding."""
    unknown = [name for name in names if name not in rows]
    require(not unknown, f"--lanes names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(rows)}")
    return [rows[name] for name in dict.fromkeys((AR, *names))]


def _for_texts(texts: TextSet, lanes: Sequence[PaperLane], rows: Mapping[str, PaperLane]) -> list[PaperLane]:
    """Lanes for a data set. On PG-19, DynaTree also runs with D_max=9, as the authors did without reporting it."""
    deepened = [
        (lane, rows[DEEPER]) if lane.name == DYNATREE and texts.stands_for == PG19 else (lane,) for lane in lanes
    ]
    return list({lane.name: lane for these in deepened for lane in these}.values())
