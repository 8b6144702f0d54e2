"""Means over texts as in the paper: first over prompts, then over tasks and sampling settings with equal weight.

Bootstrap intervals resample prompts within each task; each sample has the same prompts for all settings and
contenders. All functions are pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, Statistic, bootstrap
from dynatui.lab.bench.sampling.request import Place

DRAWS = 2000
Values: TypeAlias = Mapping[Place, float]
"""One number per text, such as its block efficiency."""


def mean(values: Values) -> float:
    """Mean over prompts, then over all tasks and settings with equal weight."""
    return float(np.mean([np.mean(list(cell.values())) for cell in _cells(values).values()]))


def by_task(values: Values) -> dict[str, float]:
    """Mean over all settings, for each task."""
    tasks = dict.fromkeys(place.task for place in values)
    return {task: mean({place: value for place, value in values.items() if place.task == task}) for task in tasks}


def by_sampling(values: Values) -> dict[int, float]:
    """Mean over all tasks for each sampling setting, by the setting's number."""
    settings = sorted({place.sampling for place in values})
    return {one: mean({place: value for place, value in values.items() if place.sampling == one}) for one in settings}


def estimate(values: Values, seed: int) -> Interval:
    """Mean over all texts, with its bootstrap confidence interval."""
    prompts = _prompts(values)
    return _interval(mean(values), lambda drawn: _drawn_means(values, prompts, drawn), prompts, seed)


def ratio(over: Values, under: Values, seed: int) -> Interval:
    """Quotient of the means of two quantities over their common texts, with its bootstrap confidence interval."""
    common = over.keys() & under.keys()
    one, other = ({place: value for place, value in values.items() if place in common} for values in (over, under))
    prompts = _prompts(one)

    def quotients(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        return _drawn_means(one, prompts, drawn) / _drawn_means(other, prompts, drawn)

    return _interval(mean(one) / mean(other), quotients, prompts, seed)


def _prompts(values: Values) -> dict[str, NDArray[np.int64]]:
    """Numbers of the prompts of each task."""
    by_task: dict[str, set[int]] = defaultdict(set)
    for place in sorted(values):
        by_task[place.task].add(place.prompt)
    return {task: np.array(sorted(numbers)) for task, numbers in by_task.items()}


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
        [_means_of(cell, samples[task]) for (_, task), cell in _cells(values).items()], axis=0
    )
    return means


def _means_of(cell: Mapping[int, float], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of one task and setting for each bootstrap sample; if no prompt of a sample has a value, the mean over all
    prompts that have a value.
    """
    row = np.array([cell.get(number, 0.0) for number in range(drawn.max() + 1)])
    known = np.isin(drawn, list(cell))
    counts = known.sum(axis=1)
    return np.where(counts, row[drawn].sum(axis=1, where=known) / np.maximum(counts, 1), np.mean(list(cell.values())))


def _cells(values: Values) -> dict[tuple[int, str], dict[int, float]]:
    """Values grouped by (setting number, task), then by prompt number."""
    cells: dict[tuple[int, str], dict[int, float]] = defaultdict(dict)
    for place in sorted(values):
        cells[place.sampling, place.task][place.prompt] = values[place]
    return cells
