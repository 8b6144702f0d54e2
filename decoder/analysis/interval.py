"""A statistic with its interval, the bootstrap and Student's t that give one, and the verdict that it allows. Pure."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
"""Samples of a bootstrap."""
COVERAGE = 0.95

Verdict: TypeAlias = Literal["holds", "does not hold", "cannot tell"]
Statistic: TypeAlias = Callable[[Sequence[NDArray[np.int64]]], NDArray[np.float64]]
"""From the places drawn in each group, (draws, values in the group), to the statistic of each draw, (draws,)."""


class Interval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A statistic, and the interval that holds the true one with a probability of `COVERAGE` unless said otherwise."""

    value: float = msgspec.field(name="mean")
    std: float | None = None
    """Of the values, population, where it is told."""
    low: float | None
    """None: there are too few values to tell the uncertainty."""
    high: float | None

    def times(self, factor: float) -> "Interval":
        """In another unit."""
        std, low, high = (None if each is None else each * factor for each in (self.std, self.low, self.high))
        return Interval(value=self.value * factor, std=std, low=low, high=high)


def bootstrap(
    statistic: Statistic, groups: Sequence[int], *, seed: int, draws: int = DRAWS, coverage: float = COVERAGE
) -> tuple[float, float]:
    """The ends of a statistic's percentile interval, values drawn anew within each group.

    Args:
        statistic: Computes it from places of values.
        groups: How many values each group has.
        seed: Of the generator, which draws the groups in their order.
        draws: How many samples are drawn.
        coverage: Of the interval.
    """
    random = np.random.default_rng(seed)
    drawn = statistic([random.integers(size, size=(draws, size)) for size in groups])
    low, high = np.percentile(drawn, (50 - 50 * coverage, 50 + 50 * coverage)).tolist()
    return low, high


def students_t(freedom: float, coverage: float = COVERAGE) -> float:
    """Standard errors from the mean to each end of an interval, with so many degrees of freedom."""
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a tenth of a second, and the screen starts without it

    return float(stdtrit(freedom, 0.5 + coverage / 2))


def verdict(found: Interval | None, limit: float = 1.0, *, below: bool = False) -> Verdict:
    """Whether a statistic exceeds a limit, or lies below it: its whole interval must lie on one side."""
    if found is None or found.low is None or found.high is None or found.low <= limit <= found.high:
        return "cannot tell"
    return "holds" if (found.high < limit) is below else "does not hold"
