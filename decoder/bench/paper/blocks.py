"""Record of one prompt's turns: figures of all lanes at every length, compared with ar's.

At the first difference from ar's text, float32 decides whether it is a near tie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from msgspec import structs

from decoder.analysis.metrics import Tally, figures
from decoder.bench.contenders import BASELINE, Trial
from decoder.bench.paper.cuts import cut
from decoder.bench.paper.records import Turn
from decoder.bench.paper.request import Lane, Request
from decoder.engine import Engine
from decoder.events import Figures
from decoder.forward.near_tie import Judge
from decoder.methods import METHODS, WHOLE


@dataclass(frozen=True)
class TurnResult:
    """Result of a turn, kept until all lanes have had theirs."""

    at: tuple[Tally, ...]
    """Totals at each length; the last has the peak memory of the whole turn."""
    kv_bytes: int | None
    waited: float | None

    @classmethod
    def of(cls, trial: Trial, waited: float | None, lengths: Sequence[int]) -> Self:
        """Result of a trial."""
        cuts = [cut(trial.after, length) for length in lengths]
        cuts[-1] = structs.replace(cuts[-1], peak_bytes=trial.tally.peak_bytes)
        return cls(tuple(cuts), trial.kv_bytes, waited)


def turns(
    engine: Engine, request: Request, prompt: Sequence[int], results: Mapping[str, TurnResult]
) -> tuple[Turn, ...]:
    """Turns of a block, in the order of the request's lanes.

    Raises:
        DeviceError: There is no memory in which near ties could be judged.
    """
    ar = results[BASELINE]
    judge = Judge(engine.pair.target, engine.gumbel_noise())
    return tuple(
        Turn(
            lane=lane.name,
            at=_judged(judge, lane, prompt, results[lane.name].at, ar.at),
            kv_bytes=results[lane.name].kv_bytes,
            waited=results[lane.name].waited,
        )
        for lane in request.lanes
        if lane.name in results
    )


def _judged(
    judge: Judge, lane: Lane, prompt: Sequence[int], at: Sequence[Tally], ar: Sequence[Tally]
) -> tuple[Figures, ...]:
    """Figures at each length; all lengths with the difference get the same verdict."""
    until = None if lane.own_text else WHOLE
    at_lengths = [figures(tally, plain, same_until=until) for tally, plain in zip(at, ar, strict=True)]
    index = at_lengths[-1].first_difference
    if index is None:
        return tuple(at_lengths)
    right, other = ar[-1].tokens, at[-1].tokens
    verdict = judge([*prompt, *right[:index]], (right[index], other[index]), by_module=lane.method not in METHODS)
    return tuple(
        each
        if each.first_difference is None
        else structs.replace(each, near_tie=verdict.near_tie, first_difference_gap=verdict.gap)
        for each in at_lengths
    )
