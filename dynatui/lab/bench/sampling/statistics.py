"""Means over texts as in the paper, and the paper's numbers and claims, each tested by a quotient of two means.

All values are series with one number per text, such as its block efficiency, indexed by the fields of `TextKey`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, Statistic, Verdict, bootstrap, compared_to_limit
from dynatui.lab.bench.sampling.records import TextKey

VERIFIERS = {
    "khisti": ("Khisti", 4.41, 12.75, 5.23, 14.83),
    "naive_tree": ("NaiveTree", 4.50, 13.29, 4.94, 16.18),
    "naive": ("Naive", 4.52, 12.44, None, None),
    "nss": ("NSS", 4.05, 11.91, 4.48, 15.05),
    "specinfer": ("SpecInfer", 4.58, 13.55, 5.03, 16.69),
    "spectr": ("SpecTr", 4.61, 13.32, 5.05, 16.40),
    "block": ("BV", 4.30, 13.36, None, None),
    "traversal": ("Traversal", 5.31, 15.89, None, None),
}
"""By verifier, in the order of the rows of tables 8 to 15: the name in the paper, block efficiency and tokens per
second on i.i.d. trees, block efficiency and tokens per second on delayed trees.
"""
NAMES = {verifier: name for verifier, (name, *_) in VERIFIERS.items()}
DRAWS = 2000


def _column(place: int) -> Mapping[str, float]:
    """One column of `VERIFIERS`, by verifier, in ascending order of the numbers."""
    numbers = {verifier: row[place] for verifier, row in VERIFIERS.items()}
    known = {verifier: float(number) for verifier, number in numbers.items() if number is not None}
    return dict(sorted(known.items(), key=lambda item: item[1]))


TOKENS, SPEED = "tokens a round", "tokens a second"
"""Names of the two measures that the best shape can maximise."""
SAID_OF = {TOKENS: "block efficiency", SPEED: "tokens/s"}
"""Names of the two measures in the text of claims."""
REPORTED = {TOKENS: (_column(1), _column(3)), SPEED: (_column(2), _column(4))}
"""The paper's averages on i.i.d. trees and on delayed trees, by measure."""


def series(values: Mapping[TextKey, float]) -> pd.Series:
    return pd.Series([*values.values()], pd.MultiIndex.from_tuples(values, names=TextKey._fields), "float64")


def mean(values: pd.Series) -> float:
    """Mean over prompts, then over all tasks and settings with equal weight."""
    return float(_cells(values).mean())


def means(values: pd.Series, by: str) -> dict[Any, float]:
    """`mean` of each task (`by="task"`), or of each sampling setting by its number (`by="sampling"`)."""
    found: dict[Any, float] = _cells(values).groupby(level=by, sort=False).mean().to_dict()
    return found


def _cells(values: pd.Series) -> pd.Series:
    return values.groupby(level=["sampling", "task"], sort=False).mean()


def estimate(values: pd.Series, seed: int) -> Interval:
    return _interval(mean(values), values, lambda drawn: _drawn_means(values, drawn), seed)


def ratio(over: pd.Series, under: pd.Series, seed: int) -> Interval:
    """Quotient of the means of two quantities over their common texts."""
    one, other = over.align(under, join="inner")
    return _interval(
        mean(one) / mean(other), one, lambda drawn: _drawn_means(one, drawn) / _drawn_means(other, drawn), seed
    )


def _interval(middle: float, values: pd.Series, statistic: Statistic, seed: int) -> Interval:
    """Value with a bootstrap confidence interval, by resampling the prompts of each task; there are no bounds if every
    task has a single prompt.
    """
    counts = [len(prompts) for _, prompts in _by_task(values)]
    low, high = bootstrap(statistic, counts, seed=seed, draws=DRAWS)
    return Interval(value=middle, low=low, high=high) if high > low else Interval(value=middle, low=None, high=None)


def _by_task(values: pd.Series) -> Iterator[tuple[str, pd.DataFrame]]:
    """Tasks in ascending order, each with a table of its values: a row for each prompt, a column for each setting."""
    for task, rows in values.unstack("sampling").groupby(level="task"):  # noqa: PD010 - a series has no `pivot_table`
        yield str(task), rows.dropna(axis="columns", how="all")


def _drawn_means(values: pd.Series, drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Mean over all tasks and settings, for each bootstrap sample of prompts. If no prompt of a sample has a value of a
    task and setting, the mean over all prompts with a value is used.
    """
    found = []
    for (_, rows), prompts in zip(_by_task(values), drawn, strict=True):
        table = rows.to_numpy(np.float64)
        samples = table[prompts]
        counts = (~np.isnan(samples)).sum(axis=1)
        sums = np.nansum(samples, axis=1)
        found.append(np.where(counts, sums / np.maximum(counts, 1), np.nanmean(table, axis=0)))
    of_samples: NDArray[np.float64] = np.concatenate(found, axis=1).mean(axis=1)
    return of_samples


class SamplingClaim(msgspec.Struct, frozen=True, kw_only=True):
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
    """Number of pairs whose order is undecided, because the confidence interval of the quotient contains 1."""


def ranking(what: str, values: Mapping[str, pd.Series], reported: Mapping[str, float], seed: int) -> Ranking:
    known = [name for name in reported if name in values]
    pairs = [(one, other) for one, other in combinations(known, 2) if reported[one] != reported[other]]
    ordered = [sorted(pair, key=lambda name: -reported[name]) for pair in pairs]
    verdicts = [compared_to_limit(ratio(values[better], values[worse], seed)) for better, worse in ordered]
    return Ranking(
        what=what,
        here=sorted(known, key=lambda name: -mean(values[name])),
        paper=sorted(known, key=lambda name: -reported[name]),
        holds=verdicts.count("holds"),
        fails=verdicts.count("does not hold"),
        open=verdicts.count("cannot tell"),
    )


def of_measure(
    measure: str, iid: Mapping[str, pd.Series], delayed: Mapping[str, pd.Series], seed: int
) -> Iterator[SamplingClaim]:
    """The paper's claims about one measure; `iid` and `delayed` have the values on both kinds of trees, by verifier."""
    what, (there, there_delayed) = SAID_OF[measure], REPORTED[measure]
    known = {name: there[name] for name in there if name in iid}
    if not known:
        return
    best, worst = max(known, key=lambda name: known[name]), min(known, key=lambda name: known[name])
    if others := [name for name in known if name not in (best, worst)]:
        second, least = (extreme(others, key=lambda name: mean(iid[name])) for extreme in (max, min))
        says = f"{what}: {NAMES[best]} over {NAMES[second]}, the best of the other verifiers"
        yield claim(says, iid[best], iid[second], seed, known[best] / max(known[name] for name in others))
        says = f"{what}: {NAMES[least]}, the worst of the other verifiers, over {NAMES[worst]}"
        yield claim(says, iid[least], iid[worst], seed, min(known[name] for name in others) / known[worst])
    for name in (name for name in delayed if name in iid):
        quotient = there_delayed[name] / there[name] if name in there_delayed else None
        says = f"{what}: {NAMES[name]} on delayed trees over i.i.d. trees"
        yield claim(says, delayed[name], iid[name], seed, quotient)
    if top_down := [name for name in delayed if name in there_delayed]:
        first = max(top_down, key=lambda name: mean(delayed[name]))
        quotient = max(there_delayed[name] for name in top_down) / there[best]
        top = f"{NAMES[first]}, the best top-down verifier on delayed trees"
        yield claim(f"{what}: {top}, over {NAMES[best]} on i.i.d. trees", delayed[first], iid[best], seed, quotient)


def along_depth(
    distance: Sequence[pd.Series], acceptance: Mapping[str, Sequence[pd.Series]], seed: int
) -> Iterator[SamplingClaim]:
    """Claims of the paper's figure 1: from the root to the deepest level, L1 distance grows and acceptance falls."""
    yield claim("L1 distance grows with depth", distance[-1], distance[0], seed)
    for name, levels in acceptance.items():
        yield claim(f"acceptance of {NAMES[name]} falls with depth", levels[0], levels[-1], seed)


def claim(says: str, over: pd.Series, under: pd.Series, seed: int, quotient: float | None = None) -> SamplingClaim:
    here = ratio(over, under, seed)
    return SamplingClaim(says=says, paper=quotient, here=here, verdict=compared_to_limit(here))
