"""Made-up progress and result of a tuning."""

from dataclasses import replace
from typing import Any

from decoder.analysis.interval import Interval
from decoder.methods.dynatree import PRESETS
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling
from dynatui.lab.tuning import outcome
from dynatui.lab.tuning.outcome import Checked, Conditions, Tuned, TuneProgress, verdict
from dynatui.lab.tuning.search import Current, Leader, MethodSetting, State
from dynatui.lab.tuning.study import trees

WHERE = Conditions("org/large", "org/small", "cpu", "float32", Sampling(), 0, 64, 16, 3)
TREE_FOUND = replace(PRESETS["tuned"], d0=3.0, tau_l=0.1, rho_stop=0.01, rho_deep=0.2, n_max=9)
SHARES = {"n_max": 0.5, "rho_stop": 0.2, "tau_h": 0.1, "d0": 0.08, "tau_l": 0.05, "d_max": 0.04, "rho_deep": 0.03}
SHIPPED_ONES = {
    "dynatree": Leader(MethodSetting("dynatree", trees(0).shipped)),
    "linear": Leader(MethodSetting("linear", Linear())),
}
FOUND_ONES = {
    "dynatree": Leader(MethodSetting("dynatree", TREE_FOUND), 23, 0.1, (0.2, 0.21, 0.19)),
    "linear": Leader(MethodSetting("linear", Linear(4)), 8, 0.1, (0.1,)),
}
CURRENT = Current(MethodSetting("dynatree", TREE_FOUND), 4, 16, Interval(value=0.97, low=0.93, high=1.02))


def progress(*, checking: bool = False, **changes: Any) -> TuneProgress:
    given: dict[str, Any] = {"leaders": FOUND_ONES, "trials": 37, "pruned": 29, "current": CURRENT}
    state = State(**given | {"importance": SHARES | {"branching": 0.0, "history": 0.0}} | changes)
    return TuneProgress(WHERE, state, checking, left_s=80.0, check_s=90.0, checked=12 if checking else 0)


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
    state = progress().state
    found = None if gain is None else TREE_FOUND
    return Tuned(WHERE, found, Linear(4), state, checked, verdict(checked), "2030-01-02T03:04:05Z")
