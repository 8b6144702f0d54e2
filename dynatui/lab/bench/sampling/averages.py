"""Means over texts as in the paper: first over prompts, then over tasks and sampling settings with equal weight.

Bootstrap intervals resample prompts within each task; each sample has the same prompts for all settings and
contenders. All functions are pure.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, Statistic, bootstrap
from dynatui.lab.bench.sampling.request import Place

DRAWS = 2000
Values: TypeAlias = Mapping[Place, float] | pd.Series
"""One number per text, such as its block efficiency; a series has the fields of `Place` as index."""


def mean(values: Values) -> float:
    """Mean over prompts, then over all tasks and settings with equal weight."""
    return float(np.mean([cell.to_numpy().mean() for _, cell in _cells(values)]))


def by_task(values: Values) -> dict[str, float]:
    return {task: mean(those) for task, those in _series(values).groupby(level="task", sort=False)}


def by_sampling(values: Values) -> dict[int, float]:
    """By the setting's number."""
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
    return pd.Series([*values.values()], pd.MultiIndex.from_tuples(values, names=Place._fields), "float64")


def _cells(values: Values) -> list[tuple[tuple[int, str], pd.Series]]:
    """Values by (setting, task), in ascending order, as those of a cell by prompt."""
    return [*_series(values).sort_index().groupby(level=["sampling", "task"])]


def _prompts(values: Values) -> dict[str, NDArray[np.int64]]:
    """Numbers of the prompts of each task."""
    prompts: dict[str, set[int]] = {}
    for _, task, prompt in _series(values).sort_index().index:
        prompts.setdefault(task, set()).add(prompt)
    return {task: np.array(sorted(numbers)) for task, numbers in prompts.items()}


def _interval(middle: float, statistic: Statistic, prompts: Mapping[str, NDArray[np.int64]], seed: int) -> Interval:
    """Bootstrap confidence interval; it has no bounds if every task has a single prompt."""
    low, high = bootstrap(statistic, [len(numbers) for numbers in prompts.values()], seed=seed, draws=DRAWS)
    return Interval(value=middle, low=low, high=high) if high > low else Interval(value=middle, low=None, high=None)


def _drawn_means(
    values: Values, prompts: Mapping[str, NDArray[np.int64]], drawn: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Mean over all tasks and settings for each bootstrap sample of prompts."""
    samples = {task: numbers[places] for (task, numbers), places in zip(prompts.items(), drawn, strict=True)}
    means: NDArray[np.float64] = np.mean(
        [_means_of(cell.droplevel(["sampling", "task"]), samples[task]) for (_, task), cell in _cells(values)], axis=0
    )
    return means


def _means_of(cell: pd.Series, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of one task and setting for each bootstrap sample; if no prompt of a sample has a value, the mean over all
    prompts that have a value.
    """
    row: NDArray[np.float64] = cell.reindex(range(drawn.max() + 1), fill_value=0.0).to_numpy()
    known = np.isin(drawn, cell.index)
    counts = known.sum(axis=1)
    return np.where(counts, row[drawn].sum(axis=1, where=known) / np.maximum(counts, 1), float(cell.to_numpy().mean()))
