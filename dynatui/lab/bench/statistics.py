"""Medians with bootstrap intervals. All functions are pure.

Values come in groups: one group per prompt, with one value per repeat. Prompts differ more than repeats do, so the
bootstrap resamples both: repeats within each prompt, then prompts.
"""

from collections.abc import Sequence
from statistics import median
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, bootstrap

Groups: TypeAlias = Sequence[Sequence[float | None]]
"""Values by prompt and repeat: one inner sequence for each prompt; a value is None if unknown."""


class Median(Interval, frozen=True, kw_only=True):
    """Median over prompts with its interval; JSON files name the value "median"."""

    value: float = msgspec.field(name="median")


def estimate(groups: Groups, seed: int) -> Median | None:
    """Median of the medians of all groups, with a bootstrap interval; None if there is no value."""
    known = [[value for value in group if value is not None] for group in groups]
    filled = [np.array(group) for group in known if group]
    if not filled:
        return None
    middle = median(median(group) for group in known if group)
    sizes = [len(group) for group in filled]
    if sum(sizes) == 1:
        return Median(value=middle, low=None, high=None)

    def medians(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        *repeats, prompts = drawn
        of_prompts = np.stack([np.median(group[places], axis=1) for group, places in zip(filled, repeats, strict=True)])
        chosen = np.take_along_axis(of_prompts, prompts.reshape(len(filled), -1), axis=0)
        median_of_samples: NDArray[np.float64] = np.median(chosen, axis=0)
        return median_of_samples

    low, high = bootstrap(medians, [*sizes, len(filled)], seed=seed)
    return Median(value=middle, low=low, high=high)


def ratios(numerators: Groups, denominators: Groups) -> list[list[float]]:
    """Quotients of values that were measured side by side: for each prompt, a list over repeats.

    If one of the two values is unknown, their quotient is left out of the list.
    """
    return [
        [over / under for over, under in zip(above, below, strict=False) if over is not None and under is not None]
        for above, below in zip(numerators, denominators, strict=True)
    ]
