"""Measured tokens per second of the tree shapes with the highest expected speed, and of coupled trees.

All contenders decode each text, one after the other. A disturbed measurement is not repeated: results vary more with
the random numbers than with the timing, and further texts reduce both variations. Every text and repeat has its own
seed; with equal seeds, coupled trees write the same text as `ar`, plain decoding. Shapes are chosen before decoding, by
closed forms and pass times, so that there is no selection bias.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from decoder.draft.delayed_shape import DelayedTree
from decoder.engine import Engine
from decoder.methods.delayed import SHIPPED, Delayed
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling, Schedule
from decoder.verify.names import Drafting
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.protocol import Experiment, measured, warmed_up
from dynatui.lab.bench.sampling.best import Aim, best_shape
from dynatui.lab.bench.sampling.log import Decoded, Expected, Realised
from dynatui.lab.bench.sampling.request import Contest, Place, SamplingRequest

COUPLED_METHODS = ("dynatree", "fixed", "linear")
"""Methods for which draft and target sample with the same Gumbel noise; they run with their default parameters."""
DRAWING = "delayed"
"""Name of the method that decodes with sampled draft trees."""


def chosen(request: SamplingRequest, records: Sequence[Expected], aim: Aim) -> dict[Contest, DelayedTree]:
    """For each contest, the shape that maximises `aim` over all texts of one sampling setting."""
    return {contest: best_shape(request, records, contest, aim)[0] for contest in request.contests()}


def contender_name(contest: Contest, shape: DelayedTree) -> str:
    """Name of the contender with the contest's verifier and this shape; several contests can share a contender."""
    return f"{contest.verifier} {shape.k},{shape.l1},{shape.l2}"


def selecting_name(contest: Contest) -> str:
    """Name of the contender that decodes with the contest's verifier and a selector of shapes."""
    return f"{contest.verifier} {contest.drafting}"


def contenders(
    request: SamplingRequest, sampling: Sampling, shapes: Mapping[Contest, DelayedTree], selector: str = SHIPPED
) -> list[Contender]:
    """All contenders: plain decoding, coupled trees, and each verifier with its chosen shapes and with a selector."""
    lanes = [own(name, name, name, _config(request, sampling, name)) for name in (BASELINE, *COUPLED_METHODS)]
    drawn = {
        contender_name(contest, shape): Delayed(contest.verifier, Drafting.DELAYED, shape.k, shape.l1, shape.l2)
        for contest, shape in shapes.items()
    }
    for contest in request.selecting():
        # `first` is the shape of the first round; in all later rounds, the selector chooses the shape
        first = shapes[Contest(contest.verifier, Drafting.DELAYED)]
        drawn[selecting_name(contest)] = Delayed(
            contest.verifier, contest.drafting, first.k, first.l1, first.l2, selector
        )
    lanes += [own(name, DRAWING, DRAWING, _config(request, sampling, DRAWING, rules)) for name, rules in drawn.items()]
    return lanes


def realised(
    engine: Engine,
    request: SamplingRequest,
    prompts: dict[Place, Sequence[int]],
    contenders: Sequence[Contender],
    done: frozenset[tuple[Place, int]],
) -> Iterator[Realised]:
    """Decodes those texts of one sampling setting that are not yet in the log; yields a record for each decoded text.

    Args:
        engine: Engine with the loaded pair.
        request: Request of the measurement.
        prompts: Token ids of the prompts by place, all with the same sampling setting.
        contenders: Contenders that decode each text.
        done: Pairs (place, repeat) of the texts in the log.
    """
    places, texts = list(prompts), list(prompts.values())
    plan = Experiment(contenders, texts, texts[:1], request.repeats, request.seed, attempts=1)
    left = plan.turns({(repeat, places.index(place)) for place, repeat in done if place in prompts})
    if left:
        warmed_up(seeded(engine, request, places[left[0].prompt], left[0].repeat), plan, lambda _: None)
    for (number, repeat), turns in groupby(left, key=lambda turn: (turn.prompt, turn.repeat)):
        place = places[number]
        decoded = tuple(
            Decoded(
                contender=sample.contender,
                tokens=sample.tally.timed_tokens,
                rounds=sample.tally.rounds,
                decode_s=sample.tally.decode_s,
                waited=sample.waited,
            )
            for sample in measured(seeded(engine, request, place, repeat), plan, turns)
        )
        yield Realised(place=place, repeat=repeat, turns=decoded)


def seeded(engine: Engine, request: SamplingRequest, place: Place, repeat: int = 0) -> Engine:
    """Engine with the text's sampling setting, and a seed that no other text or repeat has."""
    number = repeat * len(request.places()) + request.places().index(place)
    return engine.sampled(request.seed + number, Schedule(request.samplings[place.sampling]))


def _config(request: SamplingRequest, sampling: Sampling, method: str, rules: Delayed | None = None) -> RunConfig:
    config = RunConfig(
        (method,),
        request.max_new_tokens,
        request.seed,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )
    return config if rules is None else config.with_rules(DRAWING, rules)
