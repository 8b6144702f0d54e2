"""Contenders for an experiment's lanes, and the results of all lanes on one prompt, compared with plain decoding
(`ar`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from msgspec import structs

from decoder.analysis.metrics import Tally, figures
from decoder.engine import Engine
from decoder.events import Figures
from decoder.forward.near_tie import Judge
from decoder.methods import METHODS, WHOLE
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from dynatui.lab.bench.baselines import baselines
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.paper.experiments import rules
from dynatui.lab.bench.paper.records import LaneResult, PaperExperiment, PaperLane, PaperRequest
from dynatui.lab.bench.protocol import Sample


def turns(
    engine: Engine, request: PaperRequest, prompt: Sequence[int], samples: Iterable[Sample]
) -> tuple[LaneResult, ...]:
    """Results of all lanes on one prompt, in the order of the request's lanes; `samples` has one sample per lane."""
    results = {sample.contender: sample for sample in samples}
    ar = results[BASELINE]
    judge = Judge(engine.pair.target, engine.gumbel_noise(), engine.scorer)
    found = tuple(
        LaneResult(
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
    judge: Judge, lane: PaperLane, prompt: Sequence[int], at: Sequence[Tally], ar: Sequence[Tally]
) -> tuple[Figures, ...]:
    """Figures of a lane at each text length. One near-tie verdict on the first difference from the text of `ar` applies
    to all lengths that include this difference.
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


def contenders(pair: Pair, request: PaperRequest, experiment: PaperExperiment) -> list[Contender]:
    """Contenders for an experiment's lanes, in the order of the lanes; lanes of transformers use the pair's modules."""
    lanes = [request.lane(name) for name in experiment.lanes]
    config = RunConfig(
        max_new_tokens=experiment.lengths[-1], seed=request.seed, temperature=request.temperature, top_p=request.top_p
    )
    foreign = baselines(pair, config) if any(lane.method not in METHODS for lane in lanes) else []

    def contender(lane: PaperLane) -> Contender:
        if lane.method not in METHODS:
            same = (one for one in foreign if one.group == lane.method and dict(one.settings) == lane.parameters)
            return replace(next(same), name=lane.name)
        given = rules(lane)
        return own(lane.name, lane.family, lane.method, config.with_rules(*given) if given else config)

    return list(map(contender, lanes))
