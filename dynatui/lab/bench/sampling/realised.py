"""Measured tokens per second of the tree shapes with the highest expected speed, and of coupled trees.

All contenders decode each text, one after the other. A disturbed measurement is not repeated: random numbers change the
results more than disturbances do, and further texts reduce both effects. Every text and repeat has its own seed; with
equal seeds, coupled trees give the same text as plain decoding (`ar`). Shapes are chosen before decoding, by closed
forms and pass times, so that the choice does not bias the measured speeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from decoder.draft.delayed_shape import DelayedTree
from decoder.engine import Engine
from decoder.methods.delayed import SHIPPED, Delayed
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling, Schedule
from decoder.verify.names import Drafting
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.protocol import Experiment, measured, warmed_up
from dynatui.lab.bench.sampling.log import Decoded, Realised
from dynatui.lab.bench.sampling.request import Contest, SamplingRequest, TextKey

COUPLED_METHODS = ("dynatree", "fixed", "linear")
"""Methods for which draft and target sample with the same Gumbel noise; they run with their default parameters."""
DRAWING = "delayed"
"""Name of the method that decodes with sampled draft trees."""


def contender_name(contest: Contest, shape: DelayedTree | None) -> str:
    """Name of the contender with the contest's verifier and with `shape`, or with a selector if `shape` is None.
    Several contests can have the same contender.
    """
    return f"{contest.verifier} {f'{shape.k},{shape.l1},{shape.l2}' if shape else contest.drafting}"


def contenders(
    request: SamplingRequest, sampling: Sampling, shapes: Mapping[Contest, DelayedTree], selector: str = SHIPPED
) -> list[Contender]:
    """All contenders: plain decoding, coupled trees, and each verifier with its chosen shapes and with a selector."""
    drawn = {
        contender_name(contest, shape): Delayed(contest.verifier, Drafting.DELAYED, shape.k, shape.l1, shape.l2)
        for contest, shape in shapes.items()
    }
    for contest in request.selecting():
        # `first` is the shape of the first round; in all later rounds, the selector chooses the shape
        first = shapes[Contest(contest.verifier, Drafting.DELAYED)]
        rules = Delayed(contest.verifier, contest.drafting, first.k, first.l1, first.l2, selector)
        drawn[contender_name(contest, None)] = rules

    def lane(name: str, method: str, rules: Delayed | None = None) -> Contender:
        config = RunConfig((method,), request.max_new_tokens, request.seed).with_rules(SAMPLING, sampling)
        return own(name, method, method, config if rules is None else config.with_rules(DRAWING, rules))

    lanes = [lane(name, name) for name in (BASELINE, *COUPLED_METHODS)]
    return lanes + [lane(name, DRAWING, rules) for name, rules in drawn.items()]


def realised(
    engine: Engine,
    request: SamplingRequest,
    prompts: dict[TextKey, Sequence[int]],
    contenders: Sequence[Contender],
    done: frozenset[tuple[TextKey, int]],
) -> Iterator[Realised]:
    """Decodes the texts of one sampling setting that are not in the log; yields a record for each text and repeat.

    `done` has the pairs (place, repeat) of the texts in the log.
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


def seeded(engine: Engine, request: SamplingRequest, place: TextKey, repeat: int = 0) -> Engine:
    """Engine with the text's sampling setting, and a seed that no other text or repeat has."""
    number = repeat * len(request.places()) + request.places().index(place)
    return engine.sampled(request.seed + number, Schedule(request.samplings[place.sampling]))
