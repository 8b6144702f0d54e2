"""Conversion of lanes (methods with parameters) into contenders, which decode texts of one length."""

from dataclasses import replace

from decoder.methods import METHODS
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from dynatui.lab.bench.baselines import baselines
from dynatui.lab.bench.contenders import Contender, own
from dynatui.lab.bench.paper.lanes import rules
from dynatui.lab.bench.paper.request import Lane, PaperExperiment, PaperRequest


def contenders(pair: Pair, request: PaperRequest, experiment: PaperExperiment) -> list[Contender]:
    """Contenders for an experiment's lanes, in the order of the lanes; transformers uses the pair's own modules.

    Raises:
        ConfigError: A parameter of a lane is out of bounds.
    """
    lanes = [request.lane(name) for name in experiment.lanes]
    config = RunConfig(
        max_new_tokens=experiment.lengths[-1], seed=request.seed, temperature=request.temperature, top_p=request.top_p
    )
    foreign = baselines(pair, config) if any(lane.method not in METHODS for lane in lanes) else []

    def contender(lane: Lane) -> Contender:
        if lane.method not in METHODS:
            same = (one for one in foreign if one.group == lane.method and dict(one.settings) == lane.parameters)
            return replace(next(same), name=lane.name)
        given = rules(lane)
        return own(lane.name, lane.family, lane.method, config.with_rules(*given) if given else config)

    return list(map(contender, lanes))
