"""Confidence intervals of statistics by the bootstrap or Student's t, and verdicts based on the intervals."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
FEW_DRAWS = 200
"""Number of bootstrap samples for intervals that a screen computes anew every second."""
COVERAGE = 0.95
_ANGLES = 1 << 15

Verdict: TypeAlias = Literal["holds", "does not hold", "cannot tell"]
Statistic: TypeAlias = Callable[[Sequence[NDArray[np.int64]]], NDArray[np.float64]]
"""(for each group, sampled indices of shape (draws, group size)) -> statistic of each bootstrap sample."""


class Interval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A statistic with its confidence interval; `low` and `high` are None if there are too few values."""

    value: float = msgspec.field(name="mean")
    std: float | None = None
    low: float | None
    high: float | None

    def times(self, factor: float) -> "Interval":
        std, low, high = (None if number is None else number * factor for number in (self.std, self.low, self.high))
        return Interval(value=self.value * factor, std=std, low=low, high=high)


def bootstrap(
    statistic: Statistic, groups: Sequence[int], *, seed: int, draws: int = DRAWS, coverage: float = COVERAGE
) -> tuple[float, float]:
    """Percentile interval of `statistic`, by resampling within each group; `groups`: number of values in each group."""
    random = np.random.default_rng(seed)
    values = statistic([random.integers(size, size=(draws, size)) for size in groups])
    low, high = np.percentile(values, (50 - 50 * coverage, 50 + 50 * coverage)).tolist()
    return low, high


def resampled(size: int, random: np.random.Generator, draws: int = FEW_DRAWS) -> NDArray[np.int64]:
    """Indices of bootstrap samples of an autocorrelated series, of shape (draws, size), by the circular block bootstrap
    (Politis and Romano 1992).
    """
    block = max(1, round(math.sqrt(size)))
    starts = random.integers(size, size=(draws, -(-size // block), 1))
    return ((starts + np.arange(block)) % size).reshape(draws, -1)[:, :size]


def quotient_ends(
    above: NDArray[np.float64], below: NDArray[np.float64], *, seed: int, draws: int = DRAWS
) -> NDArray[np.float64]:
    """Both ends of the interval of sum(above) / sum(below) for each column, by resampling rows."""
    times = _times_drawn(len(above), seed, draws)
    ends: NDArray[np.float64] = np.percentile(
        (times @ above) / (times @ below), (50 - 50 * COVERAGE, 50 + 50 * COVERAGE), axis=0
    )
    return ends


@lru_cache(maxsize=8)
def _times_drawn(count: int, seed: int, draws: int) -> NDArray[np.float64]:
    """Number of times that each of `count` rows is in each bootstrap sample, shape (draws, count)."""
    drawn = np.random.default_rng(seed).integers(count, size=(draws, count))
    places = drawn + count * np.arange(draws)[:, None]
    return np.bincount(places.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)


def variance_of_mean(series: NDArray[np.float64]) -> tuple[float, float]:
    """Variance of an autocorrelated series' mean, by overlapping batch means, and the estimate's degrees of freedom."""
    count = len(series)
    block = max(1, round(math.sqrt(count)))
    sums = np.cumsum(np.concatenate([[0.0], series]))
    means = (sums[block:] - sums[:-block]) / block
    blocks = count - block + 1
    spread = float(((means - series.mean()) ** 2).sum())
    variance = block * count * spread / (blocks * (count - block)) / count
    return variance, 1.5 * (count / block - 1)


@lru_cache(maxsize=1024)
def students_t(freedom: float, coverage: float = COVERAGE) -> float:
    """Half the width of a Student's t interval, in standard errors. With t = sqrt(freedom) tan(angle), the density is
    proportional to cos(angle)^(freedom - 1), which the midpoint rule integrates. Importing scipy for this would take
    half a second.
    """
    angles = (np.arange(_ANGLES) + 0.5) * (math.pi / 2 / _ANGLES)
    below = np.cumsum(np.cos(angles) ** (freedom - 1))
    angle = np.interp(coverage * below[-1], below, angles + math.pi / 4 / _ANGLES)
    return math.sqrt(freedom) * math.tan(float(angle))


def factor_of(series: NDArray[np.float64], coverage: float = COVERAGE) -> float:
    """Factor f of the interval (ratio / f, ratio * f); mean(`series`) has the same variance as log(ratio)."""
    variance, freedom = variance_of_mean(series)
    return math.exp(min(students_t(freedom, coverage) * math.sqrt(variance), 100.0)) if variance > 0 else 1.0


def compared_to_limit(interval: Interval | None, limit: float = 1.0, *, below: bool = False) -> Verdict:
    """Whether the value is above `limit` (with `below`: below it); unknown if the interval contains `limit`."""
    if interval is None or interval.low is None or interval.high is None or interval.low <= limit <= interval.high:
        return "cannot tell"
    return "holds" if (interval.high < limit) is below else "does not hold"
