"""Means over texts as the paper takes them: over prompts, then over tasks and settings of sampling alike.

Intervals come from a bootstrap that draws prompts anew within each task, the same ones for all settings and for
everybody who is compared. Pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from decoder.bench.sampling.asked import Place
from decoder.bench.statistics import COVERAGE

DRAWS = 2000
Values: TypeAlias = Mapping[Place, float]
"""One number a text."""


class Mean(msgspec.Struct, frozen=True):
    """A mean, and the interval that holds the true one with a probability of `COVERAGE`."""

    mean: float
    low: float | None
    """None: every task has but one prompt, which tells nothing of uncertainty."""
    high: float | None


def mean(values: Values) -> float:
    """Over all tasks and settings alike."""
    return float(np.mean([np.mean(list(cell.values())) for cell in _cells(values).values()]))


def by_task(values: Values) -> dict[str, float]:
    """The mean over settings, by task."""
    tasks = dict.fromkeys(place.task for place in values)
    return {task: mean({place: value for place, value in values.items() if place.task == task}) for task in tasks}


def by_sampling(values: Values) -> dict[int, float]:
    """The mean over tasks, by the number of the setting."""
    settings = sorted({place.sampling for place in values})
    return {one: mean({place: value for place, value in values.items() if place.sampling == one}) for one in settings}


def estimate(values: Values, seed: int) -> Mean:
    """The mean with its interval."""
    (drawn,) = _drawn_means([values], seed)
    return _with_interval(mean(values), drawn)


def ratio(over: Values, under: Values, seed: int) -> Mean:
    """The quotient of two means, on the texts that both know."""
    common = over.keys() & under.keys()
    one, other = ({place: value for place, value in values.items() if place in common} for values in (over, under))
    above, below = _drawn_means([one, other], seed)
    return _with_interval(mean(one) / mean(other), above / below)


def _with_interval(middle: float, drawn: NDArray[np.float64]) -> Mean:
    tails = (50 - 50 * COVERAGE, 50 + 50 * COVERAGE)
    low, high = np.percentile(drawn, tails).tolist()
    return Mean(middle, low, high) if high > low else Mean(middle, None, None)


def _drawn_means(all_values: Sequence[Values], seed: int) -> list[NDArray[np.float64]]:
    """The mean on `DRAWS` samples of prompts, the same ones for all."""
    random = np.random.default_rng(seed)
    numbers = {
        place.task: sorted({each.prompt for each in all_values[0] if each.task == place.task})
        for place in sorted(all_values[0])
    }
    draws = {task: random.choice(known, (DRAWS, len(known))) for task, known in numbers.items()}
    return [
        np.mean([_means_of(cell, draws[task]) for (_, task), cell in _cells(values).items()], axis=0)
        for values in all_values
    ]


def _means_of(cell: Mapping[int, float], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean of each sample of prompts; of one that holds no known prompt, that of all."""
    row = np.array([cell.get(number, 0.0) for number in range(drawn.max() + 1)])
    known = np.isin(drawn, list(cell))
    counts = known.sum(axis=1)
    return np.where(counts, row[drawn].sum(axis=1, where=known) / np.maximum(counts, 1), np.mean(list(cell.values())))


def _cells(values: Values) -> dict[tuple[int, str], dict[int, float]]:
    """By setting and task, then by prompt."""
    cells: dict[tuple[int, str], dict[int, float]] = defaultdict(dict)
    for place in sorted(values):
        cells[place.sampling, place.task][place.prompt] = values[place]
    return cells
