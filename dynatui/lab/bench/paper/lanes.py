"""Lanes (methods with parameters): rows of the paper's tables, settings of the paper's figures, and further methods.

The three phases of the paper's ablation are parameter values of dynatree; see `decoder.methods.adaptive`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import msgspec

from decoder.knobs import RulesName, TunableParameters
from decoder.methods import METHODS
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from dynatui.lab.bench.baselines import ASSISTED, CACHES
from dynatui.lab.bench.paper.request import Lane
from dynatui.lab.bench.sweep.spaces import SPACES

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


def catalogue(*, sampled: bool) -> dict[str, Lane]:
    """All lanes of the experiment `main` by name, in the order of the tables' rows.

    If tokens are sampled, transformers uses other random numbers and writes other texts.
    """
    lanes = (*_chains_and_trees(), *_of_the_registry(), *_of_transformers(sampled=sampled))
    return {lane.name: lane for lane in lanes}


def fixed_grid(depths: Iterable[int], branchings: Iterable[int], taus: Iterable[float]) -> tuple[Lane, ...]:
    """Lanes of the paper's sweep of fixed trees: every combination of depth, branching and threshold."""
    return tuple(
        _varied(f"fixed D{depth} B{branching} tau={tau:g}", "fixed", GRID_TREE, D=depth, B=branching, tau=tau)
        for depth, branching, tau in product(depths, branchings, taus)
    )


def sensitivity(
    thresholds: Iterable[tuple[float, float]], breadths: Iterable[tuple[int, int]], depths: Iterable[tuple[int, int]]
) -> tuple[Lane, ...]:
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


def rules(lane: Lane) -> tuple[RulesName, TunableParameters] | None:
    """Method and parameters of a lane with a registered method; None if the method has no parameters.

    Raises:
        ConfigError: A parameter is out of bounds.
    """
    name = METHODS[lane.method].rules
    usual = METHODS[name].own if name else None
    return (name, msgspec.convert(lane.parameters, type(usual))) if name and usual else None


def paper_depth(lane: Lane) -> int | None:
    """Number of tokens per round by which the paper's acceptance formula divides; None for lanes without such a number.

    For a chain the number is K, which leaves out the bonus token. For a tree the number is D + 2, which counts the
    drafted root and the bonus token; D is the base depth, or the tree's depth if depth is not adaptive. The formula is
    kept, although fixed trees and phase 1 draft D levels and commit at most D + 1 tokens here, one less than the
    authors' trees.
    """
    match lane:
        case Lane(method="linear" | "streaming", parameters={"k": int(length)}):
            return length
        case Lane(method="fixed", parameters={"depth": int(depth)}):
            return depth + 2
        case Lane(method="dynatree", parameters={"rho_deep": 0, "d_max": int(deepest)}):
            return deepest + 2
        case Lane(method="dynatree" | "alg1", parameters={"d0": int(base) | float(base)}):
            return round(base) + 2
        case _:
            return None


def _chains_and_trees() -> Iterator[Lane]:
    yield Lane(name=AR, method=AR, family=AR, parameters={}, paper_name="AR")
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


def _of_the_registry() -> Iterator[Lane]:
    """Lanes of further methods with their default parameters, if they are registered."""
    for name, paper_name in (("bestfirst", None), ("streaming", "Streaming"), ("auto", None)):
        if (method := METHODS.get(name)) and method.own is not None:
            yield _own(name, name, name, method.own, paper_name, own_text=method.same_until is not None)


def _of_transformers(*, sampled: bool) -> Iterator[Lane]:
    settings: dict[str, Mapping[str, Any]] = {f"generate {cache}": {"cache_implementation": cache} for cache in CACHES}
    settings |= {f"assisted {name}": drafting for name, drafting in ASSISTED.items()}
    for name, parameters in settings.items():
        method = name.partition(" ")[0]
        paper_name = "HF assisted" if name == ASSISTANT else None
        yield Lane(
            name=name, method=method, family="hf", parameters=dict(parameters), paper_name=paper_name, own_text=sampled
        )


def _varied(name: str, space: str, base: TunableParameters, **values: float) -> Lane:
    """Lane for one setting of a sweep: the base parameters, some of them replaced by the given values."""
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
) -> Lane:
    """Lane of a registered method; its parameters have JSON types, so that the lane equals its copy from a log."""
    parameters = msgspec.json.decode(msgspec.json.encode(rules))
    return Lane(
        name=name, method=method, family=family, parameters=parameters, paper_name=paper_name, own_text=own_text
    )
