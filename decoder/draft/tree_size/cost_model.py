"""Seconds of a draft level or a verification by number of rows, from measurements at a few sizes. Each round scales the
whole curve, so the curve adapts quickly if the text grows or the machine slows down; its shape changes slowly.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Protocol

from decoder.draft.tree_size.plan import SIZES, TreePlan

HIGHEST_ROWS = 65
"""Largest number of rows that a round verifies: the root and the drafted nodes that are kept."""
PACE_STEP = 0.1
"""After each round, the whole curve is scaled by (measured / expected time) ** PACE_STEP."""
SELDOM_STEP = 0.3
"""Replaces `PACE_STEP` for the curves of plain rounds and of lookups, which are seldom updated."""
SHAPE_STEP = 0.02
"""Exponent of the ratios measured / expected time by which the time at the nearest measured size is scaled."""
RESHAPED_EVERY = 32
SETTLED = 24
"""Number of updates after which a curve no longer reflects errors of its initial measurement."""
CLIP = 1.25
"""Ratios of measured to expected time are clipped to [1/CLIP, CLIP], so that one slow call has a bounded effect."""
PLAN_STEP = 0.15
"""Like `PACE_STEP`, for the time of a planned size."""


class CostModel(Protocol):
    def plain_s(self) -> float:
        """Seconds of a plain round; 0 if unknown."""

    def chains_s(self) -> Iterator[float]:
        """Seconds of rounds that draft and verify a chain of 1, 2, ... tokens."""


def clipped_ratio(seconds: float, expected_s: float) -> float:
    return min(CLIP, max(1 / CLIP, seconds / expected_s))


class RowCostCurve:
    """Expected seconds by number of rows: linear between the measured sizes and beyond the largest size."""

    def __init__(self, measured: Mapping[int, float], pace_step: float = PACE_STEP) -> None:
        """`measured`: seconds by number of rows; 0 for calls that are never made."""
        self._pace_step = pace_step
        self._rows = sorted(measured)
        self._seconds = [measured[rows] for rows in self._rows]
        self._pace = 1.0
        self._learnt = 0
        self._ratios = [1.0] * len(self._rows)
        """Product of the ratios measured / expected time at each size since the last interpolation."""
        sizes = range(len(self._rows))
        self._nearest = [
            min(sizes, key=lambda index: abs(self._rows[index] - rows)) for rows in range(HIGHEST_ROWS + 1)
        ]
        self._shape = self._interpolated()

    def seconds(self, rows: int) -> float:
        beyond = max(0, rows - HIGHEST_ROWS)
        return self._pace * (self._shape[rows - beyond] + beyond * (self._shape[-1] - self._shape[-2]))

    @property
    def settled(self) -> bool:
        return self._learnt >= SETTLED

    def by_rows(self, most_rows: int = HIGHEST_ROWS) -> list[float]:
        """Seconds of calls with 0, 1, ..., `most_rows` rows; the first entry is 0."""
        return [self._pace * seconds for seconds in self._shape[: most_rows + 1]]

    def learn(self, calls: Sequence[int], seconds: float) -> float:
        """`calls`: rows of each call; `seconds`: their total time. Returns the factor that scaled the whole curve."""
        expected = sum(map(self.seconds, calls))
        if not expected or seconds <= 0:
            return 1.0
        ratio = clipped_ratio(seconds, expected)
        factor: float = ratio**self._pace_step
        self.scale(factor)
        if len(self._rows) > 1:
            self._reshape(max(calls), ratio)
        return factor

    def scale(self, factor: float) -> None:
        self._pace *= factor

    def _reshape(self, rows: int, ratio: float) -> None:
        """Every `RESHAPED_EVERY` updates, scales the time of each size by (product of its ratios) ** SHAPE_STEP, and
        the times of the two adjacent sizes by the square root of this factor.
        """
        self._ratios[self._nearest[min(rows, HIGHEST_ROWS)]] *= ratio
        self._learnt += 1
        if self._learnt % RESHAPED_EVERY:
            return
        for size, product in enumerate(self._ratios):
            factor = product**SHAPE_STEP
            for place, part in ((size - 1, factor**0.5), (size, factor), (size + 1, factor**0.5)):
                if 0 <= place < len(self._rows):
                    self._seconds[place] *= part
        self._ratios = [1.0] * len(self._rows)
        self._shape = self._interpolated()

    def _interpolated(self) -> list[float]:
        by_rows = [0.0] * (HIGHEST_ROWS + 1)
        points = list(zip(self._rows, self._seconds, strict=True))
        if len(points) == 1:
            points.append((points[0][0] * 2, points[0][1] * 2))
        lines = list(pairwise(points))
        for rows in range(1, len(by_rows)):
            (low, fast), (high, slow) = next((line for line in lines if rows <= line[1][0]), lines[-1])
            by_rows[rows] = max(min(fast, slow), fast + (slow - fast) * (rows - low) / (high - low))
        return by_rows


@dataclass(frozen=True)
class Costs:
    """Costs of passes, which are reused for later texts."""

    plain: RowCostCurve
    """A target pass of one row directly after another target pass."""
    catch_up: RowCostCurve
    """First draft pass of a round, directly after a target pass, by the text rows that it reads."""
    draft: RowCostCurve
    """Draft pass over one level's nodes, including the selection of the best tokens."""
    verify: RowCostCurve
    """Target pass over the root and the kept nodes, after drafting."""
    host: RowCostCurve
    """Time outside passes in a round with a draft; a curve with the single size 1."""
    lookup: RowCostCurve = field(default_factory=lambda: RowCostCurve({1: 0.0}))
    """Additional time of a round with lookup guesses; a curve with the single size 1. Separate from `host` and `draft`,
    since the search of a repetitive text may take longer than a small model's pass.
    """

    def plain_s(self) -> float:
        """Seconds of a plain round, or of a one-row verification after drafting if these are fewer."""
        return min(self.plain.seconds(1), self.verify.seconds(1))

    def chains_s(self) -> Iterator[float]:
        drafts_s = self.host.seconds(1) + self.catch_up.seconds(1)
        for length in count(1):
            yield drafts_s + self.verify.seconds(1 + length)
            drafts_s += self.draft.seconds(1)


class SizeTimes:
    """EMA of seconds by size. An unseen size gets the time of the nearest seen size, scaled if `proportional`."""

    def __init__(self, *, proportional: bool = False) -> None:
        self._proportional = proportional
        self._seconds: dict[int, float] = {}

    def seconds(self, size: int = 1) -> float:
        """Estimated seconds of a size; 0 before the first round."""
        if size in self._seconds or not self._seconds:
            return self._seconds.get(size, 0.0)
        nearest = min(self._seconds, key=lambda timed_size: abs(timed_size - size))
        return self._seconds[nearest] * (size / nearest if self._proportional else 1.0)

    def learn(self, seconds: float, size: int = 1) -> None:
        expected = self.seconds(size)
        if size not in self._seconds:
            self._seconds[size] = min(seconds, 2 * expected) if expected else seconds
        elif expected > 0 and seconds > 0:
            self._seconds[size] = expected * clipped_ratio(seconds, expected) ** PLAN_STEP


class PlanCosts:
    def __init__(self) -> None:
        self._draft = SizeTimes(proportional=True)
        self._verify = SizeTimes()
        self._host = SizeTimes()
        """Time outside draft and verification in a round with a draft."""
        self._plain = SizeTimes()

    @property
    def known(self) -> bool:
        return self._draft.seconds() > 0

    def plain_s(self) -> float:
        return self._plain.seconds() or self._verify.seconds()

    def round_s(self, plan: TreePlan) -> float:
        return self._draft.seconds(plan.depth) + self._verify.seconds(plan.nodes) + self._host.seconds()

    def chains_s(self) -> Iterator[float]:
        for length in count(1):
            yield self.round_s(TreePlan(length, next((size for size in SIZES if size > length), SIZES[-1])))

    def learn(self, plan: TreePlan | None, draft_s: float, verify_s: float, round_s: float) -> None:
        """`plan` is None for a round without a draft."""
        self._verify.learn(verify_s, plan.nodes if plan else 1)
        if plan is None:
            # The device may begin a verification before the round begins, so the verification may take longer than the
            # round.
            self._plain.learn(max(round_s, verify_s))
            return
        self._draft.learn(draft_s, plan.depth)
        self._host.learn(max(0.0, round_s - draft_s - verify_s))
