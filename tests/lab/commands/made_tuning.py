"""A made-up result of a tuning."""

from dataclasses import replace

from decoder.analysis.interval import Interval
from decoder.methods.dynatree import PRESETS
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling
from dynatui.lab.tuning import outcome
from dynatui.lab.tuning.outcome import Checked, Conditions, Tuned
from dynatui.lab.tuning.search import Trials

WHERE = Conditions("org/large", "org/small", "cpu", "float32", Sampling(), 0, 64, 16, 3)
TREE_FOUND = replace(PRESETS["tuned"], d0=3.0, tau_l=0.1, rho_stop=0.01, rho_deep=0.2, n_max=9)
SHARES = {"n_max": 0.5, "rho_stop": 0.2, "tau_h": 0.1, "d0": 0.08, "tau_l": 0.05}


def estimate(median: float, *, sure: bool) -> Interval:
    return Interval(value=median, low=median - (0.01 if sure else 0.3), high=median + 0.05)


def tuned(gain: float | None, *, sure: bool = True, wrong: frozenset[str] = frozenset(), **over_ar: float) -> Tuned:
    """A made-up result: `gain` is the found tree's speed over the shipped preset's, if one was found, `sure` whether
    intervals of unequal speeds are narrow, and `over_ar` the speeds of other methods over ar.
    """
    speeds = {**dict.fromkeys(outcome.NAMES[1:], 1.0), outcome.SHIPPED_CHAIN: 0.9, **over_ar}
    if gain is not None:
        speeds[outcome.FOUND] = gain * speeds[outcome.SHIPPED]
    ratios = {
        (one, other): estimate(speeds[one] / speeds[other], sure=sure and speeds[one] != speeds[other])
        for one in speeds
        for other in speeds
        if one != other
    }
    checked = Checked(
        20, {name: Interval(value=100 * speed, low=90, high=210) for name, speed in speeds.items()}, ratios, wrong
    )
    found = None if gain is None else TREE_FOUND
    return Tuned(WHERE, found, Linear(4), Trials(37, 29), SHARES, checked, "2030-01-02T03:04:05Z")
