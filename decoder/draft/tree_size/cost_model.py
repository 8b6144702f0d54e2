"""Cost model of a round on this machine: seconds of a draft level and of a verification, each by its rows.

Begins with a few measured sizes and follows the rounds: their times move the whole curve quickly, as the text grows or
the machine slows down, and its shape slowly. Pure: knows no models and reads no clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Protocol

from decoder.draft.tree_size.plan import SIZES, Plan

HIGHEST_ROWS = 65
"""No call of a budgeted round has more rows: the root and as many nodes as a tree may keep."""
PACE_STEP = 0.1
"""Step of a whole curve towards one round's time."""
SELDOM_STEP = 0.3
"""The same for rare rounds."""
SHAPE_STEP = 0.02
"""How far the size next to the largest call follows a round."""
RESHAPED_EVERY = 32
"""Calls after which the curve takes on its new shape."""
SETTLED = 24
"""Rounds that correct the times measured beforehand."""
CLIP = 1.25
"""Ratios of measured to expected time are clipped to [1/CLIP, CLIP], so that one slow call does not upset a time."""
PLAN_STEP = 0.15
"""How far the time of a planned size follows one round."""


class CostModel(Protocol):
    """The costs that decide whether drafting may pay."""

    def plain_s(self) -> float:
        """Expected time of a round without a draft; 0: not known yet."""

    def chains_s(self) -> Iterator[float]:
        """Expected times of rounds that draft and verify a chain of 1, 2, ... tokens."""


def clipped_ratio(seconds: float, expected_s: float) -> float:
    """Ratio of measured to expected time, clipped."""
    return min(CLIP, max(1 / CLIP, seconds / expected_s))


class Curve:
    """Seconds of a call by its rows: measured sizes, straight lines between them, the last line beyond them."""

    def __init__(self, measured: Mapping[int, float], pace_step: float = PACE_STEP) -> None:
        """Takes over seconds by rows, of one size at least, zero where nothing is done; see `PACE_STEP`."""
        self._pace_step = pace_step
        self._rows = sorted(measured)
        self._seconds = [measured[rows] for rows in self._rows]
        self._pace = 1.0
        self._learnt = 0
        sizes = range(len(self._rows))
        self._nearest = [
            min(sizes, key=lambda index: abs(self._rows[index] - rows)) for rows in range(HIGHEST_ROWS + 1)
        ]
        self._shape = self._drawn()

    def seconds(self, rows: int) -> float:
        """Expected seconds of a call of this many rows."""
        return self._pace * self._shape[min(rows, HIGHEST_ROWS)]

    @property
    def settled(self) -> bool:
        """Whether rounds have corrected the times measured beforehand."""
        return self._learnt >= SETTLED

    def by_rows(self, most: int = HIGHEST_ROWS) -> list[float]:
        """Expected seconds of calls of 0, 1, 2, ... and `most` rows, or as many as a round has; none cost nothing."""
        return [self._pace * seconds for seconds in self._shape[: most + 1]]

    def learn(self, calls: Sequence[int], seconds: float) -> float:
        """Records the time of calls of so many rows together; returns the factor by which all were scaled."""
        expected = sum(map(self.seconds, calls))
        if not expected or seconds <= 0:
            return 1.0
        ratio = clipped_ratio(seconds, expected)
        factor: float = ratio**self._pace_step
        self.scale(factor)
        if len(self._rows) > 1:
            self._reshape(max(calls), ratio**SHAPE_STEP)
        return factor

    def scale(self, factor: float) -> None:
        """Multiplies the expected seconds of all calls."""
        self._pace *= factor

    def _reshape(self, rows: int, factor: float) -> None:
        """Moves the measured size that is nearest, and its neighbours half as far."""
        nearest = self._nearest[min(rows, HIGHEST_ROWS)]
        self._seconds[nearest] *= factor
        for beside in (nearest - 1, nearest + 1):
            if 0 <= beside < len(self._rows):
                self._seconds[beside] *= factor**0.5
        self._learnt += 1
        if self._learnt % RESHAPED_EVERY == 0:
            self._shape = self._drawn()

    def _drawn(self) -> list[float]:
        found = [0.0] * (HIGHEST_ROWS + 1)
        points = list(zip(self._rows, self._seconds, strict=True))
        if len(points) == 1:
            points.append((points[0][0] * 2, points[0][1] * 2))
        lines = list(pairwise(points))
        for rows in range(1, len(found)):
            (low, fast), (high, slow) = next((line for line in lines if rows <= line[1][0]), lines[-1])
            found[rows] = max(min(fast, slow), fast + (slow - fast) * (rows - low) / (high - low))
        return found


@dataclass(frozen=True)
class Costs:
    """Costs of all parts of a round; kept from text to text."""

    plain: Curve
    """A verification of the root alone, after another such: a round of `ar`."""
    catch_up: Curve
    """The draft's first forward pass of a round, right after the target's; by the rows of text that it reads."""
    draft: Curve
    """Each further one, a level, and the choice of the best tokens."""
    verify: Curve
    """A verification of the root and the kept nodes, after drafting."""
    host: Curve
    """What a round that drafted takes beside these; by its one size, 1."""

    def plain_s(self) -> float:
        """Expected time of a round of `ar`; never taken for longer than the verification of the root after a draft."""
        return min(self.plain.seconds(1), self.verify.seconds(1))

    def chains_s(self) -> Iterator[float]:
        """See `CostModel`."""
        drafts_s = self.host.seconds(1) + self.catch_up.seconds(1)
        for length in count(1):
            yield drafts_s + self.verify.seconds(1 + length)
            drafts_s += self.draft.seconds(1)


class SizeTimes:
    """Seconds of something by its size; sizes that were not seen yet are guessed from the nearest that was."""

    def __init__(self, *, proportional: bool = False) -> None:
        self._proportional = proportional
        self._seconds: dict[int, float] = {}

    def seconds(self, size: int = 1) -> float:
        """Expected seconds; 0 before any round."""
        if size in self._seconds or not self._seconds:
            return self._seconds.get(size, 0.0)
        nearest = min(self._seconds, key=lambda seen: abs(seen - size))
        return self._seconds[nearest] * (size / nearest if self._proportional else 1.0)

    def learn(self, seconds: float, size: int = 1) -> None:
        """Takes note of how long it took."""
        expected = self.seconds(size)
        if size not in self._seconds:
            self._seconds[size] = min(seconds, 2 * expected) if expected else seconds
        elif expected > 0 and seconds > 0:
            self._seconds[size] = expected * clipped_ratio(seconds, expected) ** PLAN_STEP


class PlanCosts:
    """Costs of rounds of planned sizes: a whole draft by its depth, a verification by its rows."""

    def __init__(self) -> None:
        self._draft = SizeTimes(proportional=True)
        self._verify = SizeTimes()
        self._host = SizeTimes()
        """Time of a drafting round besides both, in seconds."""
        self._plain = SizeTimes()

    @property
    def known(self) -> bool:
        """Whether a round that drafted was timed."""
        return self._draft.seconds() > 0

    def plain_s(self) -> float:
        """See `CostModel`."""
        return self._plain.seconds() or self._verify.seconds()

    def round_s(self, plan: Plan) -> float:
        """Expected time of a round of this size."""
        return self._draft.seconds(plan.depth) + self._verify.seconds(plan.nodes) + self._host.seconds()

    def chains_s(self) -> Iterator[float]:
        """See `CostModel`."""
        for length in count(1):
            yield self.round_s(Plan(length, next((size for size in SIZES if size > length), SIZES[-1])))

    def learn(self, plan: Plan | None, draft_s: float, verify_s: float, round_s: float) -> None:
        """Records the times of a round; None: a round without a draft."""
        self._verify.learn(verify_s, plan.nodes if plan else 1)
        if plan is None:
            # The device may have worked on it before the round began.
            self._plain.learn(max(round_s, verify_s))
            return
        self._draft.learn(draft_s, plan.depth)
        self._host.learn(max(0.0, round_s - draft_s - verify_s))
