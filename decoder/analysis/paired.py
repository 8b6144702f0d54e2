"""Compares two settings of a method, A and B, that decode the same text in alternation.

The text is cut into blocks of tokens. Both sides decode the tokens of a block at nearly the same time, so the ratio of
their times depends neither on the difficulty of the text nor on drifts of the machine's speed. A verdict is given only
when the number of blocks reaches a number in `LOOKS`. If both settings are equally fast, at most one comparison in 20
ever gives the verdict "faster" or "slower"; the intervals are wide enough for this.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decoder.analysis.interval import COVERAGE, factor_of
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.analysis.stalls import FEW, MANY
from decoder.events import Round
from decoder.system.waiting import MOST_WAITED

BLOCK = 8
"""Number of tokens in a block."""
WARM_UP = -(-WARM_UP_TOKENS // BLOCK)
"""Number of blocks at the beginning of each text that are not compared."""
LOOKS = (16, 32, 64, 128, 256)
"""Numbers of blocks after which a verdict is given."""
LOOK_COVERAGE = 1 - (1 - COVERAGE) / len(LOOKS)
"""Coverage of each verdict's interval; by Bonferroni's inequality, at most 5 % of comparisons have a false verdict."""
_NOISE = 1e-9
"""Largest relative difference between two totals that rounding errors can cause."""

Verdict: TypeAlias = Literal["faster", "slower", "unclear", "machine busy"]


class Side(NamedTuple):
    """Work of one side, A or B, on a block or on the text before a block boundary."""

    tokens: float
    seconds: float
    rounds: float
    waited_s: float
    stalled: float
    """Number of stalled rounds."""


class Block(NamedTuple):
    a: Side
    b: Side

    @property
    def stalled(self) -> bool:
        return self.a.stalled > 0 or self.b.stalled > 0


Blocks: TypeAlias = tuple[Block, ...]


@dataclass(frozen=True)
class Ratio:
    """Ratio B / A, and both ends of its confidence interval, whose coverage is `LOOK_COVERAGE`."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 1 by more than rounding errors."""
        return self.low > 1 + _NOISE or self.high < 1 - _NOISE


@dataclass(frozen=True)
class Comparison:
    """The latest verdict, and totals of the blocks on which it is based."""

    verdict: Verdict
    blocks: int
    a: Side
    b: Side
    rate: Ratio
    """Ratio of the tokens per second of both sides."""
    tokens_per_round: Ratio


def places(rounds: Sequence[Round]) -> list[Side]:
    """Work from the start of a text to each block boundary; the first entry is for 0 tokens. A round that crosses a
    boundary is split in proportion to its tokens on both sides of the boundary.
    """
    columns = [(0.0, 0.0, 0.0, 0.0)]
    ends = [0]
    for number, event in enumerate(rounds, 1):
        _, _, waited_s, stalled = columns[-1]
        columns.append((event.t, number, waited_s + (event.waited_s or 0.0), stalled + bool(event.stalled_s)))
        ends.append(event.position + len(event.committed))
    bounds = np.arange(0, ends[-1] + 1, BLOCK)
    known = [np.interp(bounds, ends, column) for column in np.array(columns, dtype=float).T]
    return [Side(float(bound), *map(float, values)) for bound, *values in zip(bounds, *known, strict=True)]


def between(start: Side, end: Side) -> Side:
    return Side(*(after - before for before, after in zip(start, end, strict=True)))


def is_sound(block: Block) -> bool:
    """Whether the times and counts of a block are possible; a recording may contain impossible numbers."""
    return all(math.isfinite(side.seconds) and side.seconds > 0 and side.rounds > 0 for side in block)


@lru_cache(maxsize=64)
def compared(blocks: Blocks) -> Comparison | None:
    """Compares as many blocks as the largest number in `LOOKS` that is reached; None if none is reached. `blocks` are
    in decoding order; stalled blocks are left out. If many stalled or waits were long, the verdict is "machine busy".
    """
    usable = [block for block in blocks if not block.stalled]
    look = max((number for number in LOOKS if number <= len(usable)), default=0)
    if not look:
        return None
    sides = np.array(usable[:look])  # (blocks, 2, fields of a side)
    a, b = (Side(*total) for total in sides.sum(axis=0).tolist())
    waited_s, spent_s = a.waited_s + b.waited_s, a.seconds + b.seconds
    busy = len(blocks) - len(usable) > FEW + MANY * len(blocks) or waited_s > MOST_WAITED * spent_s
    shares = look * sides[..., :3] / sides[..., :3].sum(axis=0)
    rate = _ratio(shares[..., (0, 1)], a.tokens / a.seconds, b.tokens / b.seconds)
    tokens_per_round = _ratio(shares[..., (0, 2)], a.tokens / a.rounds, b.tokens / b.rounds)
    word: Verdict = "unclear" if not rate.clear else "faster" if rate.value > 1 else "slower"
    return Comparison("machine busy" if busy else word, look, a, b, rate, tokens_per_round)


def _ratio(shares: NDArray[np.float64], a: float, b: float) -> Ratio:
    """Ratio `b` / `a`; its interval is by the delta method, since its logarithm is linear in four logarithms of totals.
    `shares`, shape (blocks, 2 sides, 2): tokens, and seconds or rounds, each divided by its mean over blocks.
    """
    factor = factor_of(shares[:, 1, 0] - shares[:, 1, 1] - shares[:, 0, 0] + shares[:, 0, 1], LOOK_COVERAGE)
    return Ratio(b / a, b / a / factor, b / a * factor)
