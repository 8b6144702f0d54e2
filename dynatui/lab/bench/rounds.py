"""Cost of rounds with trees of given sizes after texts of given lengths, and growth of this cost with the length.

The draft guesses at random, so a round commits one token, and tokens/s are computed for assumed numbers of tokens per
round. Turns after a longer text are compared with turns after the first text, in time and in multiply-adds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from decoder.analysis.metrics import figures
from dynatui.lab.bench.arithmetic import Arithmetic
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.samples import Samples
from dynatui.lab.bench.statistics import Median, estimate
from dynatui.lab.bench.summary import Bandwidth

LENGTHS = (1.0, 2.0, 3.0, 4.0, 6.0, 7.08)
"""Assumed numbers of tokens per round, for which tokens/s are computed; the last is the best number in the paper."""


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a round with one tree size after a text of one length: the mean over the rounds of a turn, then the
    median over repeats.
    """

    name: str
    context: int
    """Number of tokens of the text before the first round."""
    rows: float
    """Mean number of verified rows per round."""
    levels: float
    """Mean number of draft forward passes per round."""
    round_ms: Median
    draft_ms: float
    level_ms: float | None
    verify_ms: float
    commit_ms: float
    host_ms: float
    bandwidth_share: float | None
    waits: float | None
    """Number of times per round that the host waits for the device; None if not counted."""
    tokens_per_second: dict[float, float]
    """Tokens/s by assumed number of tokens per round, for those numbers that a tree of this size can commit."""
    multiply_adds: float | None
    """Multiply-adds of both models in a round; None if the models' calls were not counted."""
    kv_bytes: int | None
    """Allocated bytes of both models' KV caches; None if unknown."""
    peak_bytes: int
    """Peak memory during the rounds, weights included: of the device on CUDA, of the process on a CPU."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of rounds after a longer text, divided by the cost after the first text length; medians over repeats."""

    name: str
    context: int
    over: int
    """Length of the first text, in tokens."""
    round: Median
    level: float | None
    verify: float
    multiply_adds: float | None
    beyond: Median | None
    """Growth of the round's time divided by the growth of its multiply-adds."""
    kv_bytes: int | None
    """Bytes by which the KV caches are larger than after the first text; `peak_bytes` is this growth of peak memory."""
    peak_bytes: int


@dataclass(frozen=True)
class _Turn:
    """Figures of one sample; times and counts are means per round."""

    rows: float
    levels: float
    round_s: float
    draft_s: float
    verify_s: float
    commit_s: float
    host_s: float
    share: float | None
    waits: float | None
    multiply_adds: float | None
    kv_bytes: int | None
    peak_bytes: int

    @property
    def level_s(self) -> float | None:
        return self.draft_s / self.levels if self.levels else None


def rounds(
    samples: Samples, contexts: Sequence[int], seed: int, arithmetic: Arithmetic, bandwidth: Bandwidth | None
) -> list[Rounds]:
    """One row for each length and contender. Texts may differ from the text of `ar`, since near ties are common in
    random text.
    """
    return [
        _row(name, contexts[prompt], _turns(samples, name, prompt, arithmetic, bandwidth), seed)
        for prompt in samples.prompts
        for name in samples.groups
    ]


def growth(samples: Samples, contexts: Sequence[int], seed: int, arithmetic: Arithmetic) -> list[Growth]:
    """One row for each contender and each length after the first."""
    first, *others = samples.prompts
    return [
        _compared(name, (contexts[first], contexts[prompt]), _pairs(samples, name, (first, prompt), arithmetic), seed)
        for name in samples.groups
        for prompt in others
    ]


def _row(name: str, context: int, turns: Sequence[_Turn], seed: int) -> Rounds:
    def ms(measure: Callable[[_Turn], float]) -> float:
        return 1000 * median(map(measure, turns))

    first = turns[0]
    round_ms = _estimated([1000 * turn.round_s for turn in turns], seed)
    levels = [turn.level_s for turn in turns if turn.level_s is not None]
    return Rounds(
        name=name,
        context=context,
        rows=first.rows,
        levels=first.levels,
        round_ms=round_ms,
        draft_ms=ms(lambda turn: turn.draft_s),
        level_ms=1000 * median(levels) if levels else None,
        verify_ms=ms(lambda turn: turn.verify_s),
        commit_ms=ms(lambda turn: turn.commit_s),
        host_ms=ms(lambda turn: turn.host_s),
        bandwidth_share=_median([turn.share for turn in turns]),
        waits=_median([turn.waits for turn in turns]),
        tokens_per_second={length: 1000 * length / round_ms.value for length in LENGTHS if length <= first.levels + 1},
        multiply_adds=_median([turn.multiply_adds for turn in turns]),
        kv_bytes=first.kv_bytes,
        peak_bytes=round(median(turn.peak_bytes for turn in turns)),
    )


def _compared(name: str, contexts: tuple[int, int], pairs: Sequence[tuple[_Turn, _Turn]], seed: int) -> Growth:
    over, context = contexts
    grown = [long.round_s / short.round_s for short, long in pairs]
    work = [_quotient(long.multiply_adds, short.multiply_adds) for short, long in pairs]
    beyond = [time / adds for time, adds in zip(grown, work, strict=True) if adds]
    kept = [long.kv_bytes - short.kv_bytes for short, long in pairs if long.kv_bytes and short.kv_bytes]
    return Growth(
        name=name,
        context=context,
        over=over,
        round=_estimated(grown, seed),
        level=_median([_quotient(long.level_s, short.level_s) for short, long in pairs]),
        verify=median(long.verify_s / short.verify_s for short, long in pairs),
        multiply_adds=_median(work),
        beyond=estimate([beyond], seed),
        kv_bytes=kept[0] if kept else None,
        peak_bytes=round(median(long.peak_bytes - short.peak_bytes for short, long in pairs)),
    )


def _pairs(samples: Samples, name: str, prompts: tuple[int, int], arithmetic: Arithmetic) -> list[tuple[_Turn, _Turn]]:
    """Turns of a contender on two prompts, paired by repeat."""
    short, long = (_turns(samples, name, prompt, arithmetic, None) for prompt in prompts)
    return list(zip(short, long, strict=False))


def _turns(
    samples: Samples, name: str, prompt: int, arithmetic: Arithmetic, bandwidth: Bandwidth | None
) -> list[_Turn]:
    return [_turn(sample, arithmetic, bandwidth) for sample in samples.turns(name, prompt)]


def _turn(sample: Sample, arithmetic: Arithmetic, bandwidth: Bandwidth | None) -> _Turn:
    mean, seen = figures(sample.tally, None), sample.seen
    count = mean.rounds
    work = arithmetic.multiply_adds(seen.target, seen.draft) if seen else None
    return _Turn(
        rows=1 + (mean.drafted or 0) / count,
        levels=(mean.draft_forwards or 0) / count,
        round_s=mean.decode_s / count,
        draft_s=(mean.draft_s or 0.0) / count,
        verify_s=(mean.verify_s or 0.0) / count,
        commit_s=(mean.commit_s or 0.0) / count,
        host_s=(mean.host_s or 0.0) / count,
        share=bandwidth.share(mean) if bandwidth else None,
        waits=None if sample.waits is None else sample.waits / count,
        multiply_adds=None if work is None else work / count,
        kv_bytes=sample.kv_bytes,
        peak_bytes=mean.peak_bytes or 0,
    )


def _estimated(values: Sequence[float], seed: int) -> Median:
    middle = estimate([values], seed)
    assert middle is not None, "every repeat has a round"  # noqa: S101 - a programmer's mistake
    return middle


def _quotient(over: float | None, under: float | None) -> float | None:
    return None if over is None or not under else over / under


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
