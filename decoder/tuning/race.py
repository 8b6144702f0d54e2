"""Race of a candidate against the incumbent, text by text: whether it has lost, has won, or is undecided.

Both decode the same text one after the other, so only the ratio of their speeds counts: a machine's speed drifts over
minutes, and an absolute time says nothing. Pure functions of logarithms of such ratios.
"""

import math
from collections.abc import Sequence
from enum import Enum, auto
from statistics import fmean, stdev

from decoder.analysis.interval import COVERAGE, Interval, students_t

LOSING = 0.8
"""Coverage of the interval that decides a loss; low to save time, as similar settings are tried again anyway."""
ENOUGH = 6
"""Fewest texts before a candidate can win."""
FAR_BELOW = 0.9
"""Mean ratio below which two texts suffice to drop a candidate."""


class Decision(Enum):
    """State of a race."""

    GO_ON = auto()
    """Undecided: the race continues."""
    HOPELESS = auto()
    """Clearly slower, even on few texts."""
    NOT_BETTER = auto()
    """Not faster beyond noise."""
    BETTER = auto()


def ratio(logs: Sequence[float]) -> Interval | None:
    """Geometric mean of ratios with Student's interval, from their logarithms; None where there are no ratios."""
    if not logs:
        return None
    if len(logs) == 1:
        return Interval(value=math.exp(logs[0]), low=None, high=None)
    low, high = _interval(logs, COVERAGE)
    return Interval(value=math.exp(fmean(logs)), low=math.exp(low), high=math.exp(high))


def decided(logs: Sequence[float], most: int) -> Decision:
    """Decision by the ratios of a candidate's speeds to the incumbent's.

    Args:
        logs: Natural logarithms of the ratios, one a text.
        most: Texts after which an undecided race counts as not better.
    """
    if len(logs) > 1:
        winning, losing = _interval(logs, COVERAGE), _interval(logs, LOSING)
        if fmean(logs) < math.log(FAR_BELOW) or (len(logs) > 2 and losing[1] < 0):
            return Decision.HOPELESS
        if len(logs) >= ENOUGH and winning[0] > 0:
            return Decision.BETTER
        if len(logs) >= ENOUGH and fmean(logs) <= 0:
            return Decision.NOT_BETTER
    return Decision.GO_ON if len(logs) < most else Decision.NOT_BETTER


def _interval(logs: Sequence[float], coverage: float) -> tuple[float, float]:
    """Student's interval of the mean."""
    half = students_t(len(logs) - 1, coverage) * stdev(logs) / math.sqrt(len(logs))
    return fmean(logs) - half, fmean(logs) + half
