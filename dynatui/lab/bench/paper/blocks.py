"""Results of all lanes on one prompt, at every text length, compared with plain decoding (`ar`).

If a text differs from the text of `ar`, float32 logits decide whether the first difference is a near tie.
"""

from collections.abc import Iterable, Sequence

from msgspec import structs

from decoder.analysis.metrics import Tally, figures
from decoder.engine import Engine
from decoder.events import Figures
from decoder.forward.near_tie import Judge
from decoder.methods import METHODS, WHOLE
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.paper.records import Turn
from dynatui.lab.bench.paper.request import Lane, PaperRequest
from dynatui.lab.bench.protocol import Sample


def turns(engine: Engine, request: PaperRequest, prompt: Sequence[int], samples: Iterable[Sample]) -> tuple[Turn, ...]:
    """Results of all lanes on one prompt, in the order of the request's lanes; `samples` has one sample of each lane.

    Raises:
        DeviceError: The device has too little memory to judge near ties.
    """
    results = {sample.contender: sample for sample in samples}
    ar = results[BASELINE]
    judge = Judge(engine.pair.target, engine.gumbel_noise(), engine.scorer)
    found = tuple(
        Turn(
            lane=lane.name,
            at=_judged(judge, lane, prompt, results[lane.name].at, ar.at),
            kv_bytes=results[lane.name].kv_bytes,
            waited=results[lane.name].waited,
        )
        for lane in request.lanes
        if lane.name in results
    )
    engine.scorer.give_way()
    return found


def _judged(
    judge: Judge, lane: Lane, prompt: Sequence[int], at: Sequence[Tally], ar: Sequence[Tally]
) -> tuple[Figures, ...]:
    """Figures of a lane at each text length. The first difference from the text of `ar` is judged once, and the verdict
    applies to all lengths that include the difference.
    """
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
