"""Medians and their uncertainty, as pure functions of numbers.

Measurements come in groups: one group a prompt, one value a repeat. Prompts differ more than repeats do, so both are
drawn anew in the bootstrap: prompts first, then repeats within each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
COVERAGE = 0.95

Groups = Sequence[Sequence[float | None]]
"""One inner sequence a prompt, one value a repeat; None where it was not measured."""


@dataclass(frozen=True)
class Estimate:
    """A median over prompts, and the interval that holds the true one with a probability of `COVERAGE`."""

    median: float
    low: float | None
    """None: there is one value alone, which tells nothing of its uncertainty."""
    high: float | None


def estimate(groups: Groups, seed: int) -> Estimate | None:
    """The median over groups of each group's median, with a bootstrap interval; None where nothing was measured."""
    known = [[value for value in group if value is not None] for group in groups]
    filled = [group for group in known if group]
    if not filled:
        return None
    middle = median(median(group) for group in filled)
    if sum(map(len, filled)) == 1:
        return Estimate(middle, None, None)
    tails = (50 - 50 * COVERAGE, 50 + 50 * COVERAGE)
    low, high = np.percentile(_drawn_medians(filled, seed), tails)
    return Estimate(middle, float(low), float(high))


def ratios(numerators: Groups, denominators: Groups) -> list[list[float]]:
    """Quotients of values that were measured side by side, prompt by prompt and repeat by repeat.

    A turn in which only one of the two could be measured has none.
    """
    return [
        [over / under for over, under in zip(above, below, strict=False) if over is not None and under is not None]
        for above, below in zip(numerators, denominators, strict=True)
    ]


def _drawn_medians(groups: list[list[float]], seed: int) -> NDArray[np.float64]:
    """The statistic on `DRAWS` samples that are drawn from the groups with replacement."""
    random = np.random.default_rng(seed)
    of_groups = np.stack([np.median(random.choice(group, (DRAWS, len(group))), axis=1) for group in groups])
    drawn = random.integers(len(groups), size=(len(groups), DRAWS))
    medians: NDArray[np.float64] = np.median(np.take_along_axis(of_groups, drawn, axis=0), axis=0)
    return medians
