"""Means over texts as in the paper, and the paper's claims, each tested by a quotient of two means."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, Statistic, Verdict, bootstrap, compared_to_limit
from dynatui.lab.bench.sampling.request import TextKey

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
TASKS = {
    "writing": "Writing",
    "coding": "Coding",
    "translation": "Translation",
    "math_reasoning": "Math (E)",
    "math": "Math (H)",
}
"""Column heads of the paper's tables 8 and 9, by the task of Spec-Bench that replaces the column's data set."""


def _column(place: int) -> Mapping[str, float]:
    """One column of `VERIFIERS`, by verifier, in ascending order of the numbers."""
    numbers = {verifier: row[place] for verifier, row in VERIFIERS.items()}
    known = {verifier: float(number) for verifier, number in numbers.items() if number is not None}
    return dict(sorted(known.items(), key=lambda item: item[1]))


BLOCK_EFFICIENCY, TOKENS_PER_SECOND, DELAYED_BLOCK_EFFICIENCY, DELAYED_TOKENS_PER_SECOND = map(_column, range(1, 5))


DRAWS = 2000
Values: TypeAlias = Mapping[TextKey, float] | pd.Series
"""One number per text, such as its block efficiency; a series has the fields of `TextKey` as index."""


def mean(values: Values) -> float:
    """Mean over prompts, then over all tasks and settings with equal weight."""
    return float(np.mean([cell.to_numpy().mean() for _, cell in _cells(values)]))


def by_task(values: Values) -> dict[str, float]:
    return {task: mean(those) for task, those in _series(values).groupby(level="task", sort=False)}


def by_sampling(values: Values) -> dict[int, float]:
    """Means by number of the sampling setting."""
    return {number: mean(those) for number, those in _series(values).groupby(level="sampling")}


def estimate(values: Values, seed: int) -> Interval:
    prompts = _prompts(values)
    return _interval(mean(values), lambda drawn: _drawn_means(values, prompts, drawn), prompts, seed)


def ratio(over: Values, under: Values, seed: int) -> Interval:
    """Quotient of the means of two quantities over their common texts."""
    one, other = _series(over).align(_series(under), join="inner")
    prompts = _prompts(one)

    def quotients(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        return _drawn_means(one, prompts, drawn) / _drawn_means(other, prompts, drawn)

    return _interval(mean(one) / mean(other), quotients, prompts, seed)


def _series(values: Values) -> pd.Series:
    if isinstance(values, pd.Series):
        return values
    return pd.Series([*values.values()], pd.MultiIndex.from_tuples(values, names=TextKey._fields), "float64")


def _cells(values: Values) -> list[tuple[tuple[int, str], pd.Series]]:
    """Pairs ((setting, task), values of this setting and task), in ascending order of the keys."""
    return [*_series(values).sort_index().groupby(level=["sampling", "task"])]


def _prompts(values: Values) -> dict[str, NDArray[np.int64]]:
    prompts: dict[str, set[int]] = {}
    for _, task, prompt in _series(values).sort_index().index:
        prompts.setdefault(task, set()).add(prompt)
    return {task: np.array(sorted(numbers)) for task, numbers in prompts.items()}


def _interval(middle: float, statistic: Statistic, prompts: Mapping[str, NDArray[np.int64]], seed: int) -> Interval:
    """Value with a bootstrap confidence interval; there are no bounds if every task has a single prompt."""
    low, high = bootstrap(statistic, [len(numbers) for numbers in prompts.values()], seed=seed, draws=DRAWS)
    return Interval(value=middle, low=low, high=high) if high > low else Interval(value=middle, low=None, high=None)


def _drawn_means(
    values: Values, prompts: Mapping[str, NDArray[np.int64]], drawn: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Mean over all tasks and settings, for each bootstrap sample of prompts."""
    samples = {task: numbers[places] for (task, numbers), places in zip(prompts.items(), drawn, strict=True)}
    means: NDArray[np.float64] = np.mean(
        [_means_of(cell.droplevel(["sampling", "task"]), samples[task]) for (_, task), cell in _cells(values)], axis=0
    )
    return means


def _means_of(cell: pd.Series, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of one task and setting, for each bootstrap sample. If no prompt of a sample has a value, the mean over all
    prompts with a value is used.
    """
    row: NDArray[np.float64] = cell.reindex(range(drawn.max() + 1), fill_value=0.0).to_numpy()
    known = np.isin(drawn, cell.index)
    counts = known.sum(axis=1)
    return np.where(counts, row[drawn].sum(axis=1, where=known) / np.maximum(counts, 1), float(cell.to_numpy().mean()))


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


def ranking(what: str, values: Mapping[str, Values], reported: Mapping[str, float], seed: int) -> Ranking:
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
    what: str,
    iid: Mapping[str, Values],
    delayed: Mapping[str, Values],
    reported: tuple[Mapping[str, float], Mapping[str, float]],
    seed: int,
) -> Iterator[SamplingClaim]:
    """The paper's claims about one measure. `iid` and `delayed` have the measured values on the two kinds of trees, by
    verifier; `reported` has the paper's averages on both kinds.
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


def of_selector(
    what: str, selected: Mapping[str, Values], static: Mapping[str, Values], seed: int
) -> Iterator[SamplingClaim]:
    """One claim per verifier: shapes that a selector chooses in each round are better than the best fixed shape."""
    for name, values in selected.items():
        says = f"{what}: {NAMES[name]} with a selector, over the best delayed shape"
        yield _claim(says, values, static[name], seed)


def along_depth(
    distance: Sequence[Values], acceptance: Mapping[str, Sequence[Values]], seed: int
) -> Iterator[SamplingClaim]:
    """Claims of the paper's figure 1: from the root to the deepest level, L1 distance grows and acceptance falls."""
    yield _claim("L1 distance grows with depth", distance[-1], distance[0], seed)
    for name, levels in acceptance.items():
        yield _claim(f"acceptance of {NAMES[name]} falls with depth", levels[0], levels[-1], seed)


def _claim(says: str, over: Values, under: Values, seed: int, quotient: float | None = None) -> SamplingClaim:
    here = ratio(over, under, seed)
    return SamplingClaim(says=says, paper=quotient, here=here, verdict=compared_to_limit(here))
