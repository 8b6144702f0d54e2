"""The effect of a knob change: the rounds before and after it in one text, with intervals for correlated rounds. The
intervals ignore that the rounds decode different tokens; `ab_comparison` compares settings over the same tokens.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np

from decoder.analysis.interval import students_t, variance_of_mean
from decoder.analysis.stalls import Stalls, Times, left_out_from, level_of
from decoder.events import Round
from dynatui.number_format import short
from dynatui.state.lane import IN_A_ROW, Change, LaneState, Sample

Compared: TypeAlias = Literal["tokens_per_round", "tokens_per_second"]

ROUNDS = IN_A_ROW
"""Number of rounds compared before and after a knob change; changes that are fewer rounds apart are joined."""
_NOISE = 1e-9
"""Relative difference between two figures that rounding errors may cause."""
LABELS: dict[Compared, str] = {"tokens_per_round": "L-bar", "tokens_per_second": "tokens/s"}
_LARGEST_LOGARITHM = 300.0

Samples: TypeAlias = tuple[Sample, ...]


@dataclass(frozen=True)
class Difference:
    """One figure of sides A and B, with the 95 % confidence interval of B - A."""

    figure: Compared
    a: float
    b: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.b - self.a

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero by more than rounding errors."""
        noise = _NOISE * max(abs(self.a), abs(self.b))
        return self.low > noise or self.high < -noise


@lru_cache(maxsize=8)
def compared(a: Samples, b: Samples) -> tuple[Difference, ...]:
    """Differences of all figures except unknown ones; empty if a side has fewer rounds than `ROUNDS`."""
    if min(len(a), len(b)) < ROUNDS:
        return ()
    a, b = _rated(a, b)
    differences = (_difference(figure, a, b) for figure in LABELS)
    return tuple(difference for difference in differences if difference)


def _rated(a: Samples, b: Samples) -> tuple[Samples, Samples]:
    """Both sides, with decode time 0 for the stalled rounds that rates leave out."""
    stalls = [Stalls().with_round(sample.stalled_s, Times(1)) for sample in (*a, *b) if sample.stalled_s]
    level = left_out_from(stalls, len(a) + len(b))

    def timed(sample: Sample) -> Sample:
        left_out = sample.stalled_s and level_of(sample.stalled_s) >= level
        return replace(sample, round_s=0.0) if left_out else sample

    return tuple(map(timed, a)), tuple(map(timed, b))


def signed(value: float, digits: int) -> str:
    """A difference with its sign: +0.31, -1.20, 0."""
    written = short(abs(value), digits)
    if not any(digit in written for digit in "123456789"):
        return "0"
    return f"{'+' if value > 0 else '-'}{written}"


_PARTS: dict[Compared, tuple[Callable[[Sample], float], Callable[[Sample], float]]] = {
    "tokens_per_round": (lambda sample: sample.tokens, lambda _: 1.0),
    "tokens_per_second": (lambda sample: sample.timed_tokens, lambda sample: sample.round_s),
}
"""Numerator and denominator of each figure for one round; a side's figure is the ratio of the sums over its rounds."""


def _difference(figure: Compared, a: Samples, b: Samples) -> Difference | None:
    """B - A of a figure; None if unknown. The interval comes from log(B / A), so that no end is below -100 % of A."""
    sides = [_ratio(figure, samples) for samples in (a, b)]
    if any(side is None for side in sides):
        return None
    (mean_a, variance_a, freedom_a), (mean_b, variance_b, freedom_b) = (side for side in sides if side)
    if min(mean_a, mean_b) <= 0:
        return None
    reach = _reach((variance_a / mean_a**2, freedom_a), (variance_b / mean_b**2, freedom_b))
    middle = math.log(mean_b / mean_a)
    low, high = (mean_a * math.expm1(min(end, _LARGEST_LOGARITHM)) for end in (middle - reach, middle + reach))
    return Difference(figure, mean_a, mean_b, low, high)


def _reach(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Half the width of the interval of log(B / A), from relative variance and degrees of freedom of each side."""
    variance = a[0] + b[0]
    if not variance > 0:
        return 0.0
    # Welch-Satterthwaite equation: degrees of freedom of a sum of two variances.
    freedom = variance**2 / (a[0] ** 2 / a[1] + b[0] ** 2 / b[1])
    return students_t(freedom) * math.sqrt(variance)


def _ratio(figure: Compared, samples: Samples) -> tuple[float, float, float] | None:
    """A figure of one side (a ratio of two sums), its variance by the delta method, and the degrees of freedom."""
    above, below = (np.array([part(sample) for sample in samples], dtype=float) for part in _PARTS[figure])
    if not below.sum() > 0 or not np.isfinite([above.sum(), below.sum()]).all():
        return None
    ratio = float(above.sum() / below.sum())
    variance, freedom = variance_of_mean((above - ratio * below) / below.mean())
    return ratio, variance, freedom


@dataclass(frozen=True)
class Consequence:
    marks: tuple[Change, ...]
    """For each knob with a new value, one change from the old to the new value."""
    before: Samples
    after: Samples
    rounds: tuple[Round, ...]

    @property
    def complete(self) -> bool:
        """Whether all `ROUNDS` rounds after the knob change are decoded."""
        return len(self.after) == ROUNDS

    @property
    def nodes(self) -> tuple[float, float] | None:
        """Mean drafted nodes per round, before and after the knob change."""
        if not self.after:
            return None
        before, after = (fmean(sample.drafted for sample in side) for side in (self.before, self.after))
        return before, after

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Figures after minus figures before the change; empty while a side has fewer rounds than `ROUNDS`."""
        return compared(self.before, self.after)


def consequence(lane: LaneState) -> Consequence | None:
    """The effect of the last knob change; None without a change, without a round before it, or if it was undone."""
    turns = [change for change in lane.changes if change.by_user]
    if not turns:
        return None
    first = len(turns) - 1
    while first and turns[first].round - turns[first - 1].round < IN_A_ROW:
        first -= 1
    marks, began, last = _joined(turns[first:]), turns[first].round, turns[-1].round
    before = lane.samples[max(0, began - ROUNDS) : began]
    if not marks or not before:
        return None
    return Consequence(marks, before, lane.samples[last : last + ROUNDS], tuple(lane.past[last : last + ROUNDS]))


def _joined(turns: Sequence[Change]) -> tuple[Change, ...]:
    """One joined change per knob, except for the history switch and for knobs that are back at their first value."""
    marks = dict[str, Change]()
    for turn in turns:
        begun = marks.get(turn.name, replace(turn, presses=0))
        marks[turn.name] = replace(turn, old=begun.old, first=begun.first, presses=begun.presses + turn.presses)
    return tuple(mark for mark in marks.values() if mark.old != mark.new and mark.name != "history")
