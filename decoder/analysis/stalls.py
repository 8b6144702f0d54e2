"""Stalled rounds: which rounds waited so long for a processor that they say nothing of a method's speed.

A round that did is marked when it is decoded, and rates leave it out. Where many did, waiting is how this machine
works: rates without all of them would favour methods with short rounds, which hit fewer waits. Then only those are left
out that lost far more than the rest. Pure.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from statistics import median

import msgspec

from decoder.events import Figures

LEVELS_S = (0.03, 0.1, 0.3, 1.0)
"""A round that lost less than the first has not stalled: on a machine with other work, waits of 10 ms are everyday. Of
many that stalled, those are left out that lost as much as a later one."""
SHARE = 1 / 3
"""Nor has one that lost a smaller share of its time."""
RECENT = 32
"""So many of a method's latest rounds tell how long its rounds usually take."""
FEW, MANY = 1, 0.1
"""Of a run's rounds, no more than `FEW` and the share `MANY` are left out."""


class Times(msgspec.Struct, frozen=True):
    """Times of rounds, and the tokens that were timed."""

    rounds: int = 0
    timed_tokens: int = 0
    decode_s: float = 0.0
    draft_s: float | None = 0.0
    verify_s: float | None = 0.0
    commit_s: float | None = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """None where no time is known."""
        return self.timed_tokens / self.decode_s if self.decode_s else None

    def plus(self, other: "Times") -> "Times":
        """The sum of both."""
        return _each(self, other, 1)

    def without(self, part: "Times") -> "Times":
        """The times without those of a part of the rounds."""
        if not part.rounds:
            return self
        return _each(self, part, -1) if part.rounds < self.rounds else Times()


class Stalls(msgspec.Struct, frozen=True):
    """The times of stalled rounds, by the time that they lost."""

    by_level: tuple[Times, ...] = ()
    """Times of the rounds that lost at least each of `LEVELS_S`, and less than the next."""

    @property
    def rounds(self) -> int:
        """How many stalled."""
        return sum(times.rounds for times in self.by_level)

    def with_round(self, lost_s: float, times: Times) -> "Stalls":
        """With one more."""
        return self.plus(Stalls((Times(),) * level_of(lost_s) + (times,)))

    def plus(self, other: "Stalls") -> "Stalls":
        """Both."""
        pairs = zip_longest(self.by_level, other.by_level, fillvalue=Times())
        return Stalls(tuple(one.plus(two) for one, two in pairs))

    def from_level(self, level: int) -> Times:
        """Times of the rounds that lost at least a level's time."""
        total = Times()
        for times in self.by_level[level:]:
            total = total.plus(times)
        return total


def stalled_s(round_s: float, waited_s: float, earlier: Sequence[float]) -> float:
    """Seconds that a round lost because it waited; 0 of a round that has not stalled.

    Threads may wait that nothing waits for. So a round loses no more than it took longer than usual.

    Args:
        round_s: What it took.
        waited_s: How much of that threads waited for a processor, or the process was stopped.
        earlier: What the latest rounds of the method took, those left out that stalled.
    """
    if waited_s < LEVELS_S[0]:
        return 0.0
    usual_s = median((*earlier, max(0.0, round_s - waited_s)))
    lost_s = min(waited_s, round_s - usual_s)
    return lost_s if lost_s >= max(LEVELS_S[0], SHARE * round_s) else 0.0


def level_of(lost_s: float) -> int:
    """The level, a place in `LEVELS_S`, of a stalled round's lost time."""
    return max(0, bisect_right(LEVELS_S, lost_s) - 1)


def left_out_from(stalls: Iterable[Stalls], rounds: int) -> int:
    """From which level on stalled rounds are left out, so that they are few among so many rounds."""
    total = Stalls()
    for each in stalls:
        total = total.plus(each)
    levels = range(len(LEVELS_S))
    few = (level for level in levels if total.from_level(level).rounds <= FEW + MANY * rounds)
    return next(few, len(LEVELS_S))


def told(figures: Iterable[Figures]) -> tuple[str, ...]:
    """What became of a run's stalled rounds, in wordings from the longest to the shortest; nothing without any."""
    all_ = list(figures)
    stalled, left_out = (sum(getattr(one, key) for one in all_) for key in ("stalled_rounds", "left_out_rounds"))
    if not stalled:
        return ()
    rounds = f"{left_out} stalled round{'s' * (left_out != 1)}"
    of = f"{rounds} of {sum(one.left_out_s for one in all_):.2f} s"
    if left_out == stalled:
        return f"rates leave out {of}", f"{rounds} left out", f"{left_out} stalled"
    kept = f"the machine is busy: {stalled} rounds waited long for a processor"
    which = f"rates leave out {of}" if left_out else "rates count them"
    return f"{kept}, {which}", f"busy machine: {stalled} rounds stalled", f"{stalled} stalled"


def _each(one: Times, other: Times, sign: int) -> Times:
    return Times(
        rounds=one.rounds + sign * other.rounds,
        timed_tokens=one.timed_tokens + sign * other.timed_tokens,
        decode_s=one.decode_s + sign * other.decode_s,
        draft_s=_known(one.draft_s, other.draft_s, sign),
        verify_s=_known(one.verify_s, other.verify_s, sign),
        commit_s=_known(one.commit_s, other.commit_s, sign),
    )


def _known(one: float | None, other: float | None, sign: int) -> float | None:
    return None if one is None or other is None else one + sign * other
