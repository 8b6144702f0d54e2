"""Race of a candidate against the incumbent, text by text, until the candidate has lost or won.

Candidate and incumbent decode each text one after the other, and only the ratio of their speeds is used, since the
speed of a machine changes over minutes. All functions are pure functions of the logarithms of these ratios.
"""

import math
from collections.abc import Sequence
from enum import Enum, auto
from statistics import fmean, stdev

from decoder.analysis.interval import COVERAGE, Interval, students_t

LOSING = 0.8
"""Coverage of the confidence interval that decides whether a candidate loses. The coverage is low, which saves time; if
a good candidate loses by chance, similar settings are tried later.
"""
ENOUGH = 6
"""Minimum number of texts for a candidate to win."""
FAR_BELOW = 0.9
"""A candidate whose mean ratio is below this value loses, even after only two texts."""


class Decision(Enum):
    """State of a race."""

    GO_ON = auto()
    """Undecided: the race continues."""
    HOPELESS = auto()
    """The candidate loses early, since it is clearly slower."""
    NOT_BETTER = auto()
    """The candidate loses, since it is not faster beyond noise."""
    BETTER = auto()


def ratio(logs: Sequence[float]) -> Interval | None:
    """Geometric mean of ratios, with Student's interval, from the ratios' logarithms; None if there are no ratios."""
    if not logs:
        return None
    if len(logs) == 1:
        return Interval(value=math.exp(logs[0]), low=None, high=None)
    low, high = _interval(logs, COVERAGE)
    return Interval(value=math.exp(fmean(logs)), low=math.exp(low), high=math.exp(high))


def decided(logs: Sequence[float], most: int) -> Decision:
    """Decision made from the ratios of the candidate's speed to the incumbent's speed.

    Args:
        logs: Natural logarithms of the ratios, one per text.
        most: Number of texts after which an undecided candidate counts as not better.
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
