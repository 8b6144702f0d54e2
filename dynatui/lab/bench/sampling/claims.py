"""The paper's claims; each claim is tested by a quotient of two means. All functions are pure.

A claim holds if the quotient's entire confidence interval lies above 1, and fails if the interval lies below 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from decoder.analysis.interval import Interval, Verdict, verdict
from dynatui.lab.bench.sampling.averages import Values, mean, ratio
from dynatui.lab.bench.sampling.paper import NAMES


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Claim of the paper, with the paper's quotient and the measured quotient."""

    says: str
    paper: float | None
    """Quotient of the paper's own numbers; None if the paper gives no such numbers."""
    here: Interval
    verdict: Verdict


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Verifiers ranked by one measure, the best first, as measured and in the paper."""

    what: str
    here: list[str]
    paper: list[str]
    holds: int
    """Number of pairs of verifiers that are in the paper's order; pairs that are equal in the paper do not count."""
    fails: int
    """Number of pairs in the opposite order."""
    open: int
    """Number of pairs whose order is undecided, because the confidence interval of their quotient contains 1."""


def ranking(what: str, values: Mapping[str, Values], reported: Mapping[str, float], seed: int) -> Ranking:
    known = [name for name in reported if name in values]
    pairs = [(one, other) for one, other in combinations(known, 2) if reported[one] != reported[other]]
    ordered = [sorted(pair, key=lambda name: -reported[name]) for pair in pairs]
    verdicts = [verdict(ratio(values[better], values[worse], seed)) for better, worse in ordered]
    return Ranking(
        what=what,
        here=sorted(known, key=lambda name: -mean(values[name])),
        paper=sorted(known, key=lambda name: -reported[name]),
        holds=verdicts.count("holds"),
        fails=verdicts.count("does not hold"),
        open=verdicts.count("cannot tell"),
    )


def of_measure(
    what: str,
    iid: Mapping[str, Values],
    delayed: Mapping[str, Values],
    reported: tuple[Mapping[str, float], Mapping[str, float]],
    seed: int,
) -> Iterator[Claim]:
    """The paper's claims about one measure of the verifiers: measured on i.i.d. and on delayed trees, and the paper's
    averages on both.
    """
    there, there_delayed = reported
    known = {name: there[name] for name in there if name in iid}
    if not known:
        return
    best, worst = max(known, key=lambda name: known[name]), min(known, key=lambda name: known[name])
    if others := [name for name in known if name not in (best, worst)]:
        second, least = (extreme(others, key=lambda name: mean(iid[name])) for extreme in (max, min))
        says = f"{what}: {NAMES[best]} over {NAMES[second]}, the best of the other verifiers"
        yield _claim(says, iid[best], iid[second], seed, known[best] / max(known[name] for name in others))
        says = f"{what}: {NAMES[least]}, the worst of the other verifiers, over {NAMES[worst]}"
        yield _claim(says, iid[least], iid[worst], seed, min(known[name] for name in others) / known[worst])
    for name in (name for name in delayed if name in iid):
        quotient = there_delayed[name] / there[name] if name in there_delayed else None
        says = f"{what}: {NAMES[name]} on delayed trees over i.i.d. trees"
        yield _claim(says, delayed[name], iid[name], seed, quotient)
    if top_down := [name for name in delayed if name in there_delayed]:
        first = max(top_down, key=lambda name: mean(delayed[name]))
        quotient = max(there_delayed[name] for name in top_down) / there[best]
        top = f"{NAMES[first]}, the best top-down verifier on delayed trees"
        yield _claim(f"{what}: {top}, over {NAMES[best]} on i.i.d. trees", delayed[first], iid[best], seed, quotient)


def of_selector(what: str, selected: Mapping[str, Values], static: Mapping[str, Values], seed: int) -> Iterator[Claim]:
    """Claims, one per verifier: a selector that chooses a shape in each round is better than the best delayed shape."""
    for name, values in selected.items():
        says = f"{what}: {NAMES[name]} with a selector, over the best delayed shape"
        yield _claim(says, values, static[name], seed)


def along_depth(distance: Sequence[Values], acceptance: Mapping[str, Sequence[Values]], seed: int) -> Iterator[Claim]:
    """Claims of the paper's figure 1, from the root to the deepest level: L1 distance grows and acceptance falls."""
    yield _claim("L1 distance grows with depth", distance[-1], distance[0], seed)
    for name, levels in acceptance.items():
        yield _claim(f"acceptance of {NAMES[name]} falls with depth", levels[0], levels[-1], seed)


def _claim(says: str, over: Values, under: Values, seed: int, quotient: float | None = None) -> Claim:
    here = ratio(over, under, seed)
    return Claim(says=says, paper=quotient, here=here, verdict=verdict(here))
