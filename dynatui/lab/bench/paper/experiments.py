"""The paper's experiments on given data sets, with their lanes (methods with parameters), prompts and text lengths."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, starmap
from typing import Any

import msgspec

from decoder.errors import quoted, require
from decoder.knobs import RulesName, TunableParameters
from decoder.methods import METHODS
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from dynatui.lab.bench import paper as published
from dynatui.lab.bench.baselines import ASSISTED, CACHES
from dynatui.lab.bench.data_sets import TextSet
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
    return {lane.name: lane for lane in (*_of_the_engine(), *_of_transformers(sampled=sampled))}


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


def _of_the_engine() -> Iterator[PaperLane]:
    yield PaperLane(name=AR, method=AR, family=AR, parameters={}, paper_name="AR")
    for length in range(4, 9):
        yield _own(f"linear K={length}", "linear", Linear(length), f"Linear K{length}")
    for depth, branching, tau in ((5, 2, 0.05), (6, 2, 0.05), (7, 2, 0.05), (8, 3, 0.1)):
        yield _own(f"fixed D{depth} B{branching}", "fixed", Fixed(depth, branching, tau), f"Fixed D{depth}B{branching}")
    yield _own("no pruning", "fixed", Fixed(5, 2, tau=0.0, n_max=512))
    # without adaptive depth, d0 has no effect, but d0 must still be below d_max
    breadth = replace(PAPER, d0=4.0, d_max=5, rho_stop=0.0, rho_deep=0.0, history=False)
    yield _own("phase 1", "dynatree", breadth, "Phase 1")
    yield _own("phase 2", "dynatree", replace(PAPER, history=False), "Phase 2")
    yield _own(DYNATREE, "dynatree", PAPER, "DynaTree")
    yield _own(DEEPER, "dynatree", replace(PAPER, d_max=9))
    yield _own("dynatree tuned", "dynatree", PRESETS["tuned"])
    yield _own("alg1", "alg1", PAPER)
    for name, paper_name in (("bestfirst", None), ("streaming", "Streaming"), ("auto", None)):
        yield _own(name, name, METHODS[name].own, paper_name, own_text=METHODS[name].same_until is not None)


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
    return _own(name, SPACES[space].method, SPACES[space].rules(base, values))


def _own(
    name: str, method: str, rules: TunableParameters | None, paper_name: str | None = None, *, own_text: bool = False
) -> PaperLane:
    """Lane of a registered method; its parameters have JSON types, so that the lane equals its copy from a log."""
    parameters = msgspec.json.decode(msgspec.json.encode(rules))
    return PaperLane(
        name=name, method=method, family=method, parameters=parameters, paper_name=paper_name, own_text=own_text
    )


NAMES = ("main", "prompt_length", "sensitivity", "fixed_trees")
WIKITEXT = "wikitext"
"""Name of the data set that all experiments except `main` use, if it is among the given data sets."""
ALL_LANES = (
    *(AR, "linear K=5", LINEAR, UNTUNED, "fixed D6 B2", "fixed D7 B2", FIXED, "no pruning", "phase 1", "phase 2"),
    *(DYNATREE, "dynatree tuned", "alg1", "bestfirst", "streaming", "auto", "generate dynamic", "generate static"),
    ASSISTANT,
)
"""Default lanes of the experiment `main`."""


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


def require_names(extent: Extent) -> None:
    """Raises ConfigError if an experiment or lane is unknown."""
    unknown = [name for name in extent.experiments if name not in NAMES]
    require(
        bool(extent.experiments) and not unknown,
        f"--experiments names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(NAMES)}",
    )
    _rows(extent.lanes or (), catalogue(sampled=False))


def plan(
    extent: Extent, text_sets: Sequence[TextSet], *, sampled: bool
) -> tuple[tuple[PaperLane, ...], tuple[PaperExperiment, ...]]:
    """Lanes and experiments of a measurement; `text_sets` is not empty. `sampled`: decoding is not greedy."""
    require_names(extent)
    rows = catalogue(sampled=sampled)
    first = next((each for each in text_sets if each.name == WIKITEXT), text_sets[0])
    lengths = (*(length for length in extent.lengths if length < extent.length), extent.length)
    of_main = _rows(extent.lanes or extent.usual_lanes, rows)
    by_prompt_length = _rows(extent.lanes or extent.by_prompt_length, rows)
    few = replace(extent, prompts=min(extent.prompts, extent.grid_prompts))
    planned = [
        *(("main", extent, texts, _for_texts(texts, of_main, rows), lengths) for texts in text_sets),
        *(
            ("prompt_length", replace(extent, unit="characters", most=most), first, by_prompt_length, lengths)
            for most in extent.prompt_lengths
        ),
        ("sensitivity", extent, first, [rows[AR], rows[UNTUNED], *extent.varied], lengths[-1:]),
        ("fixed_trees", few, first, [rows[AR], *extent.grid], lengths),
    ]
    chosen = [each for each in planned if each[0] in extent.experiments]
    lanes = {lane.name: lane for _, _, _, those, _ in chosen for lane in those}
    return tuple(lanes.values()), tuple(starmap(_experiment, chosen))


def _experiment(
    name: str, extent: Extent, texts: TextSet, lanes: Sequence[PaperLane], lengths: tuple[int, ...]
) -> PaperExperiment:
    return PaperExperiment(
        name=name,
        data_set=texts.name,
        most=extent.most or published.MOST.get(texts.stands_for or "", published.MOST[published.WIKITEXT]),
        unit=extent.unit,
        prompts=min(extent.prompts, len(texts.prompts)),
        lanes=tuple(lane.name for lane in lanes),
        lengths=lengths,
        repeats=extent.repeats,
    )


def _rows(names: Sequence[str], rows: Mapping[str, PaperLane]) -> list[PaperLane]:
    """Lanes with these names, preceded by plain decoding."""
    unknown = [name for name in names if name not in rows]
    require(not unknown, f"--lanes names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(rows)}")
    return [rows[name] for name in dict.fromkeys((AR, *names))]


def _for_texts(texts: TextSet, lanes: Sequence[PaperLane], rows: Mapping[str, PaperLane]) -> list[PaperLane]:
    """Lanes for a data set. On PG-19, DynaTree also runs with D_max=9, as the authors did without reporting it."""
    names = [lane.name for lane in lanes]
    if DYNATREE in names and texts.stands_for == published.PG19:
        names.insert(names.index(DYNATREE) + 1, DEEPER)
    return [rows[name] for name in dict.fromkeys(names)]
