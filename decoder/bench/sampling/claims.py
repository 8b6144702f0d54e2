"""What of the paper's results holds here, computed: every sentence is a comparison of two means. Pure.

A comparison holds, or fails, where the whole interval of the quotient of the two means lies on one side of 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from decoder.analysis.interval import Interval, Verdict, verdict
from decoder.bench.sampling import paper
from decoder.bench.sampling.averages import Values, mean, ratio


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence of the paper, and what was found here."""

    says: str
    paper: float | None
    """The same quotient there; None where it gives none."""
    here: Interval
    """The quotient that must exceed 1."""
    verdict: Verdict


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """One order of the verifiers, here and there."""

    what: str
    here: list[str]
    """Verifiers, the best first."""
    paper: list[str]
    """The same ones."""
    holds: int
    """Pairs in the paper's order, of all that differ there."""
    fails: int
    """Pairs in the opposite order."""
    open: int
    """Pairs of which it cannot be told."""


def ranking(what: str, values: Mapping[str, Values], reported: Mapping[str, float], seed: int) -> Ranking:
    """How far the paper's order of verifiers holds, pair by pair."""
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
    """What the paper says of one measure of verifiers on i.i.d. and on delayed trees.

    Args:
        what: The measure.
        iid: Values by verifier.
        delayed: The same on delayed trees.
        reported: The paper's averages of both.
        seed: Of the bootstrap.
    """
    there, there_delayed = reported
    known = {name: there[name] for name in there if name in iid}
    if not known:
        return

    def claim(says: str, quotient: float | None, over: Values, under: Values) -> Claim:
        found = ratio(over, under, seed)
        return Claim(says=says, paper=quotient, here=found, verdict=verdict(found))

    best, worst = max(known, key=lambda name: known[name]), min(known, key=lambda name: known[name])
    others = [name for name in known if name not in (best, worst)]
    if others:
        second = max(others, key=lambda name: mean(iid[name]))
        quotient: float | None = known[best] / max(known[name] for name in others)
        says = f"{what}: {paper.NAMES[best]} over the best other ({paper.NAMES[second]} here)"
        yield claim(says, quotient, iid[best], iid[second])
        least = min(others, key=lambda name: mean(iid[name]))
        quotient = min(known[name] for name in others) / known[worst]
        says = f"{what}: the least other ({paper.NAMES[least]} here) over {paper.NAMES[worst]}"
        yield claim(says, quotient, iid[least], iid[worst])
    for name in (name for name in delayed if name in iid):
        quotient = there_delayed[name] / there[name] if name in there_delayed else None
        yield claim(f"{what}: {paper.NAMES[name]} on delayed over i.i.d. trees", quotient, delayed[name], iid[name])
    top_down = [name for name in delayed if name in there_delayed]
    if top_down and best in iid:
        first = max(top_down, key=lambda name: mean(delayed[name]))
        quotient = max(there_delayed[name] for name in top_down) / there[best]
        says = f"{what}: {paper.NAMES[first]}, best top-down on delayed trees, over {paper.NAMES[best]} on i.i.d."
        yield claim(says, quotient, delayed[first], iid[best])


def of_selector(what: str, selected: Mapping[str, Values], static: Mapping[str, Values], seed: int) -> Iterator[Claim]:
    """Whether choosing the shape in each round beats the best delayed shape of a setting, verifier by verifier."""
    for name, values in selected.items():
        found = ratio(values, static[name], seed)
        says = f"{what}: {paper.NAMES[name]} with a selector over the best delayed shape"
        yield Claim(says=says, paper=None, here=found, verdict=verdict(found))


def along_depth(distance: Sequence[Values], acceptance: Mapping[str, Sequence[Values]], seed: int) -> Iterator[Claim]:
    """Figure 1: rows drift apart and acceptance falls with depth; the deepest level against the root."""
    found = ratio(distance[-1], distance[0], seed)
    yield Claim(says="L1 distance grows with depth", paper=None, here=found, verdict=verdict(found))
    for name, levels in acceptance.items():
        found = ratio(levels[0], levels[-1], seed)
        says = f"acceptance of {paper.NAMES[name]} falls with depth"
        yield Claim(says=says, paper=None, here=found, verdict=verdict(found))
