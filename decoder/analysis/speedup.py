"""How many times as fast as plain decoding a method is in a race, or why this is unknown. The machine's load changes
within a run, so times are compared in segments, the shortest parts of the race in which both methods have decoded. All
passes of plain decoding do the same work, so differences between their times measure the load; if the load is too
uneven, no speed-up is given. For several texts, the segments of all texts are taken together.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from decoder.analysis.interval import COVERAGE, factor_of, students_t
from decoder.append_only import SharedList
from decoder.events import Reason

WARM_UP_TOKENS = 30
"""Warm-up of caches and threads: a speed-up is given only after this many tokens, or at the end of the text."""
WIDE = 2.0
"""An interval is wide if the ratio of its ends is at least this."""
_FEWEST = 4
"""Least number of segments for a speed-up."""
ENOUGH = 20
"""With this many segments or more, a wide interval is not caused by too few segments, but by an uneven load, or by
numbers of tokens per round that vary a lot. Only an uneven load is a reason to give no speed-up.
"""
_MOST = 64
_FEWEST_TEXTS = 5
"""With this many texts or more, the interval of a change comes from the differences between texts."""


class Decoded(msgspec.Struct, frozen=True):
    tokens: int = 0
    seconds: float = 0.0

    def plus(self, other: "Decoded") -> "Decoded":
        return Decoded(self.tokens + other.tokens, self.seconds + other.seconds)


class Segment(msgspec.Struct, frozen=True):
    """Totals of a method and of plain decoding in the same part of a race."""

    tokens: int = 0
    seconds: float = 0.0
    plain_tokens: int = 0
    plain_seconds: float = 0.0

    def plus(self, other: "Segment") -> "Segment":
        return Segment(
            self.tokens + other.tokens,
            self.seconds + other.seconds,
            self.plain_tokens + other.plain_tokens,
            self.plain_seconds + other.plain_seconds,
        )


class Segments(msgspec.Struct, frozen=True):
    """Segments of a text. When `closed` has `_MOST` entries, each pair of adjacent entries is merged into one."""

    closed: SharedList[Segment] = msgspec.field(default_factory=SharedList)
    unfinished: Segment = Segment()
    complete: int = 0
    """Number of segments that are summed in `unfinished`."""
    begun: Decoded = Decoded()
    """Total of the method's rounds in the current segment, which has not ended."""
    plain_before: Decoded = Decoded()
    stride: int = 1

    @property
    def turns(self) -> "Turns":
        entries = [*self.closed, self.unfinished] if self.complete else self.closed
        parts = np.array(list(map(msgspec.structs.astuple, entries)), dtype=float).reshape(-1, 4)
        return Turns(parts, len(self.closed) * self.stride + self.complete)

    def with_round(self, own: Decoded, plain: Decoded) -> "Segments":
        """`plain`: total of all plain decoding before this round."""
        segments = self.ended(plain)
        before = segments.plain_before if segments.begun.seconds else plain
        return Segments(
            segments.closed, segments.unfinished, segments.complete, segments.begun.plus(own), before, segments.stride
        )

    def ended(self, plain: Decoded) -> "Segments":
        """Ends the last segment if plain decoding has taken part in it."""
        plain_seconds = plain.seconds - self.plain_before.seconds
        if not (self.begun.seconds and plain_seconds > 0):
            return self
        segment = Segment(self.begun.tokens, self.begun.seconds, plain.tokens - self.plain_before.tokens, plain_seconds)
        unfinished, complete = self.unfinished.plus(segment), self.complete + 1
        if complete < self.stride:
            return Segments(self.closed, unfinished, complete, stride=self.stride)
        closed = self.closed.plus([unfinished])
        if len(closed) < _MOST:
            return Segments(closed, stride=self.stride)
        pairs = zip(closed[::2], closed[1::2], strict=True)
        return Segments(SharedList(one.plus(other) for one, other in pairs), stride=2 * self.stride)


class Turns(msgspec.Struct, frozen=True):
    parts: NDArray[np.float64]
    """Each row has the fields of a `Segment`."""
    count: int
    """Number of segments that are summed in all rows together."""


class Speedup(msgspec.Struct, frozen=True):
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: Reason | None = None


def speedup(texts: Sequence[Turns], *, whole: bool) -> Speedup:
    """Tokens per second divided by the tokens per second of plain decoding, over all segments of a method's texts.
    `whole`: whether a text has ended, so that no more of its segments will follow.
    """
    parts = np.concatenate([np.empty((0, 4)), *(turns.parts for turns in texts)])
    totals = parts.sum(axis=0)
    if len(parts) < _FEWEST or not (np.isfinite(totals).all() and (totals > 0).all()):
        return Speedup(reason="too few rounds")
    # The logarithm of the ratio is linear in the logarithms of the four totals; the delta method gives its variance.
    shares = len(parts) * parts / totals
    signs = (0.0, 0.0, -1.0, 1.0), (1.0, -1.0, -1.0, 1.0)
    of_plain, of_all = (factor_of(shares @ sign) for sign in signs)
    uneven, many = of_plain**2 >= WIDE, sum(turns.count for turns in texts) >= ENOUGH
    if of_all**2 >= WIDE and (uneven or not (many or whole)):
        return Speedup(reason="machine busy" if uneven and many else "too few rounds")
    value = float(totals[0] / totals[1] * totals[3] / totals[2])
    return Speedup(value, value / of_all, value * of_all)


def change(pairs: Sequence[tuple[Speedup, Speedup]], coverage: float = COVERAGE) -> Speedup:
    """Geometric mean over texts of the quotient second / first of two speed-ups, measured at different times. Its
    interval comes from the differences between five or more texts; for fewer texts, from the speed-ups' intervals.
    """
    known = [(one, other) for one, other in pairs if one.value and other.value]
    if not known:
        return Speedup(reason=next((one.reason or other.reason for one, other in pairs), None))
    logs = np.log([other.value / one.value for one, other in known if one.value and other.value])
    value, count = math.exp(float(logs.mean())), len(known)
    given = [math.log(each.high / each.low) / 2 for pair in known for each in pair if each.low and each.high]
    if count >= _FEWEST_TEXTS:
        reach = students_t(count - 1, coverage) * float(logs.std(ddof=1)) / math.sqrt(count)
    elif len(given) == 2 * count:
        wider = _normal(coverage) / _normal(COVERAGE)
        reach = wider * math.hypot(*given) / count
    else:
        return Speedup(value)
    return Speedup(value, value * math.exp(-reach), value * math.exp(reach))


def _normal(coverage: float) -> float:
    return NormalDist().inv_cdf((1 + coverage) / 2)
