"""Time of one form of some work relative to another form, on the device, with a confidence interval.

Times of single repeats differ by a few percent. So the two forms are repeated in turn until the interval is on one side
of each limit, and a form pays only if its whole interval is below `PAYS`: the choice between forms that take about as
long is then the same in each trial. This module knows neither kernels nor passes.
"""

import math
from dataclasses import dataclass
from functools import cache
from statistics import median

import torch

from decoder.session.cuda_graph.slots import Work
from decoder.system.device import Mark

PAYS = 0.97
"""Another form is used if it takes less than this share of the plain form's time."""
LEAST, MOST, AT_ONCE = 12, 60, 4
"""Least and largest number of repeats, and repeats between two looks at the interval."""
DOUBT = 0.01
"""Probability that the interval does not contain the true median."""


@dataclass(frozen=True)
class Share:
    """Median time of some work as a share of other work's, and its interval."""

    low: float
    median: float
    high: float

    @property
    def pays(self) -> bool:
        return self.high < PAYS

    @property
    def costs(self) -> bool:
        return self.low > 1 / PAYS

    @property
    def decided(self) -> bool:
        """More repeats would hardly change whether the work pays, costs, or takes about as long."""
        return self.pays or self.costs or (self.low >= PAYS and self.high <= 1 / PAYS)


def relative_time(work: Work, plain: Work, device: torch.device) -> Share:
    ratios: list[float] = []
    while True:
        plain_s, work_s = _seconds(plain, device), _seconds(work, device)
        ratios.append(work_s / plain_s)
        if len(ratios) < LEAST or len(ratios) % AT_ONCE:
            continue
        share = interval(ratios)
        if share.decided or len(ratios) >= MOST:
            return share


def interval(ratios: list[float]) -> Share:
    """By order statistics, for which no law of the times is assumed."""
    ordered, rank = sorted(ratios), _rank(len(ratios))
    return Share(ordered[rank], median(ordered), ordered[-1 - rank])


@cache
def _rank(count: int) -> int:
    """Index of the interval's lower end: the number of ratios below the true median has a binomial law."""
    outside = 0.0
    for rank in range(count):
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > DOUBT:
            return rank - 1
    return 0


def _seconds(work: Work, device: torch.device) -> float:
    begun = Mark(device)
    work()
    end = Mark(device)
    end.wait()
    return end.seconds_since(begun)
