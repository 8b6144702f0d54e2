"""Stalled rounds: rounds that waited so long for a processor that their time does not measure the method.

Rates do not count stalled rounds. But if many rounds stall, leaving out all of them would favour methods with short
rounds, which are interrupted less often; then only the rounds that lost the most time are left out.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from statistics import median
from typing import Any

import msgspec

from decoder.events import Figures

LEVELS_S = (0.03, 0.1, 0.3, 1.0)
"""Thresholds of a round's lost time, in seconds. The lowest threshold is well above 10 ms, a common wait on a shared
machine. If too many rounds stalled, only the rounds above a higher threshold are left out.
"""
SHARE = 1 / 3
"""A round has stalled only if it lost at least this share of its time."""
RECENT = 32
"""The usual time of a round is the median over at most this many rounds: the latest that did not stall."""
FEW, MANY = 1, 0.1
"""At most `FEW` + `MANY` * N of N rounds are left out."""


class Times(msgspec.Struct, frozen=True):
    rounds: int = 0
    timed_tokens: int = 0
    decode_s: float = 0.0
    draft_s: float | None = 0.0
    verify_s: float | None = 0.0
    commit_s: float | None = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        return self.timed_tokens / self.decode_s if self.decode_s else None

    def plus(self, other: "Times") -> "Times":
        return _combined(self, other, 1)

    def without(self, part: "Times") -> "Times":
        if not part.rounds:
            return self
        return _combined(self, part, -1) if part.rounds < self.rounds else Times()


class Stalls(msgspec.Struct, frozen=True):
    by_level: tuple[Times, ...] = ()
    """Entry i has the totals of rounds whose lost time is between `LEVELS_S[i]` and the next threshold."""

    @property
    def rounds(self) -> int:
        return sum(times.rounds for times in self.by_level)

    def with_round(self, lost_s: float, times: Times) -> "Stalls":
        return self.plus(Stalls((Times(),) * level_of(lost_s) + (times,)))

    def plus(self, other: "Stalls") -> "Stalls":
        pairs = zip_longest(self.by_level, other.by_level, fillvalue=Times())
        return Stalls(tuple(a.plus(b) for a, b in pairs))

    def from_level(self, level: int) -> Times:
        total = Times()
        for times in self.by_level[level:]:
            total = total.plus(times)
        return total


def stalled_s(round_s: float, waited_s: float, earlier: Sequence[float]) -> float:
    """Seconds that a round lost; 0 if it has not stalled. Some waits of threads do not delay a round, so the loss is at
    most the round's time minus the usual time. `earlier`: times of the latest rounds that did not stall.
    """
    if waited_s < LEVELS_S[0]:
        return 0.0
    usual_s = median((*earlier, max(0.0, round_s - waited_s)))
    lost_s = min(waited_s, round_s - usual_s)
    return lost_s if lost_s >= max(LEVELS_S[0], SHARE * round_s) else 0.0


def level_of(lost_s: float) -> int:
    return max(0, bisect_right(LEVELS_S, lost_s) - 1)


def left_out_from(stalls: Iterable[Stalls], rounds: int) -> int:
    """Lowest level such that all rounds of this level or a higher one may be left out (see `FEW`, `MANY`)."""
    total = Stalls()
    for run_stalls in stalls:
        total = total.plus(run_stalls)
    levels = range(len(LEVELS_S))
    few = (level for level in levels if total.from_level(level).rounds <= FEW + MANY * rounds)
    return next(few, len(LEVELS_S))


def stall_notes(figures: Iterable[Figures]) -> tuple[str, ...]:
    """A note about stalled rounds, in wordings from the longest to the shortest; empty if no round stalled."""
    entries = list(figures)
    stalled, left_out = (sum(getattr(entry, key) for entry in entries) for key in ("stalled_rounds", "left_out_rounds"))
    if not stalled:
        return ()
    rounds = f"{left_out} stalled round{'s' * (left_out != 1)}"
    left_out_words = f"{rounds} ({sum(entry.left_out_s for entry in entries):.2f} s)"
    if left_out == stalled:
        return f"rates leave out {left_out_words}", f"{rounds} left out", f"{left_out} stalled"
    cause = f"the machine is busy: {stalled} rounds waited long for a processor"
    consequence = f"rates leave out {left_out_words}" if left_out else "rates count them"
    return f"{cause}; {consequence}", f"busy machine: {stalled} rounds stalled", f"{stalled} stalled"


def _combined(one: Times, other: Times, sign: int) -> Times:
    pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    sums: list[Any] = [None if None in pair else pair[0] + sign * pair[1] for pair in pairs]
    return Times(*sums)
