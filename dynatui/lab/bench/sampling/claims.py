"""The paper's claims; each claim is tested by a quotient of two means. All functions are pure.

A claim holds if the quotient's entire confidence interval lies above 1, and fails if the interval lies below 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from decoder.analysis.interval import Interval, Verdict, verdict
from dynatui.lab.bench.sampling import paper
from dynatui.lab.bench.sampling.averages import Values, mean, ratio


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Claim of the paper, with the paper's quotient and the measured quotient."""

    says: str
    paper: float | None
    """Quotient of the paper's own numbers; None if the paper gives no such numbers."""
    here: Interval
    """Measured quotient with its confidence interval; the claim holds if the entire interval lies above 1."""
    verdict: Verdict


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Verifiers ranked by one measure, as measured and in the paper."""

    what: str
    here: list[str]
    """Verifiers in the measured order, the best first."""
    paper: list[str]
    """The same verifiers in the paper's order, the best first."""
    holds: int
    """Number of pairs of verifiers that are in the paper's order; pairs that are equal in the paper do not count."""
    fails: int
    """Number of pairs in the opposite order."""
    open: int
    """Number of pairs whose order is undecided, because the confidence interval of their quotient contains 1."""


def ranking(what: str, values: Mapping[str, Values], reported: Mapping[str, float], seed: int) -> Ranking:
    """Ranking of the verifiers by one measure; the order of every pair is compared with the paper's order."""
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
    """The paper's claims about one measure of the verifiers, on i.i.d. and on delayed trees.

    Args:
        what: Name of the measure, such as block efficiency.
        iid: Measured values on i.i.d. trees, by verifier.
        delayed: Measured values on delayed trees, by verifier.
        reported: The paper's averages by verifier, on i.i.d. and on delayed trees.
        seed: Random seed of the bootstrap.
    """
    there, there_delayed = reported
    known = {name: there[name] for name in there if name in iid}
    if not known:
        return

    def claim(says: str, quotient: float | None, over: Values, under: Values) -> Claim:
        return _claim(says, over, under, seed, quotient)

    best, worst = max(known, key=lambda name: known[name]), min(known, key=lambda name: known[name])
    others = [name for name in known if name not in (best, worst)]
    if others:
        second = max(others, key=lambda name: mean(iid[name]))
        quotient: float | None = known[best] / max(known[name] for name in others)
        says = f"{what}: {paper.NAMES[best]} over {paper.NAMES[second]}, the best of the other verifiers"
        yield claim(says, quotient, iid[best], iid[second])
        least = min(others, key=lambda name: mean(iid[name]))
        quotient = min(known[name] for name in others) / known[worst]
        says = f"{what}: {paper.NAMES[least]}, the worst of the other verifiers, over {paper.NAMES[worst]}"
        yield claim(says, quotient, iid[least], iid[worst])
    for name in (name for name in delayed if name in iid):
        quotient = there_delayed[name] / there[name] if name in there_delayed else None
        yield claim(
            f"{what}: {paper.NAMES[name]} on delayed trees over i.i.d. trees", quotient, delayed[name], iid[name]
        )
    top_down = [name for name in delayed if name in there_delayed]
    if top_down and best in iid:
        first = max(top_down, key=lambda name: mean(delayed[name]))
        quotient = max(there_delayed[name] for name in top_down) / there[best]
        top = f"{paper.NAMES[first]}, the best top-down verifier on delayed trees"
        says = f"{what}: {top}, over {paper.NAMES[best]} on i.i.d. trees"
        yield claim(says, quotient, delayed[first], iid[best])


def of_selector(what: str, selected: Mapping[str, Values], static: Mapping[str, Values], seed: int) -> Iterator[Claim]:
    """Claims, one per verifier: a selector that chooses a shape in each round is better than the best delayed shape."""
    for name, values in selected.items():
        says = f"{what}: {paper.NAMES[name]} with a selector, over the best delayed shape"
        yield _claim(says, values, static[name], seed)


def along_depth(distance: Sequence[Values], acceptance: Mapping[str, Sequence[Values]], seed: int) -> Iterator[Claim]:
    """Claims of the paper's figure 1, from the root to the deepest level: L1 distance grows and acceptance falls."""
    yield _claim("L1 distance grows with depth", distance[-1], distance[0], seed)
    for name, levels in acceptance.items():
        yield _claim(f"acceptance of {paper.NAMES[name]} falls with depth", levels[0], levels[-1], seed)


def _claim(says: str, over: Values, under: Values, seed: int, quotient: float | None = None) -> Claim:
    """Claim tested by the quotient of two means, beside the paper's quotient."""
    here = ratio(over, under, seed)
    return Claim(says=says, paper=quotient, here=here, verdict=verdict(here))
