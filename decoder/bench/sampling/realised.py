"""Tokens a second of the shapes that were expected to be fastest, and of coupled trees beside them, in real rounds.

Settings alternate on each text. A turn that other processes disturb is not repeated: random numbers vary more than
timings, and more texts narrow both. Seeds differ from text to text and from repeat to repeat; coupled trees write the
text of `ar` at the same seed. Shapes were chosen by closed forms and costs before decoding, so none is flattered.
"""

from collections.abc import Iterator, Mapping, Sequence

from decoder.bench.contenders import BASELINE, Contender, own
from decoder.bench.protocol import Turn, measured, schedule, warmed_up
from decoder.bench.sampling.asked import Asked, Contest, Place
from decoder.bench.sampling.best import Aim, best_shape
from decoder.bench.sampling.log import Decoded, Expected, Realised
from decoder.config import RunConfig
from decoder.draft.delayed_shape import DelayedTree
from decoder.engine import Engine
from decoder.methods.delayed import SHIPPED, Delayed
from decoder.sampling.settings import Sampling, Schedule
from decoder.verify.names import Drafting

COUPLED_METHODS = ("dynatree", "fixed", "linear")
"""Deterministic trees under the noise that target and draft share, with their usual parameters."""
DRAWING = "delayed"
"""The method that draws trees."""


def chosen(asked: Asked, records: Sequence[Expected], aim: Aim) -> dict[Contest, DelayedTree]:
    """The best shape of every contest, over all texts of one setting."""
    return {contest: best_shape(asked, records, contest, aim)[0] for contest in asked.contests()}


def contender_name(contest: Contest, shape: DelayedTree) -> str:
    """As records call a verifier with a shape, in whatever contest."""
    return f"{contest.verifier} {shape.k},{shape.l1},{shape.l2}"


def selecting_name(contest: Contest) -> str:
    """As they call a verifier with a selector."""
    return f"{contest.verifier} {contest.drafting}"


def contenders(
    asked: Asked, sampling: Sampling, shapes: Mapping[Contest, DelayedTree], selector: str = SHIPPED
) -> list[Contender]:
    """Plain decoding, coupled trees, and every verifier with each of its shapes, and with a selector."""
    found = [own(name, name, name, _config(asked, sampling, name)) for name in (BASELINE, *COUPLED_METHODS)]
    drawn = {
        contender_name(contest, shape): Delayed(contest.verifier, Drafting.DELAYED, shape.k, shape.l1, shape.l2)
        for contest, shape in shapes.items()
    }
    for contest in asked.selecting():
        # Only the first round of a text has this shape.
        first = shapes[Contest(contest.verifier, Drafting.DELAYED)]
        drawn[selecting_name(contest)] = Delayed(
            contest.verifier, contest.drafting, first.k, first.l1, first.l2, selector
        )
    found += [own(name, DRAWING, DRAWING, _config(asked, sampling, DRAWING, rules)) for name, rules in drawn.items()]
    return found


def realised(
    engine: Engine,
    asked: Asked,
    prompts: dict[Place, Sequence[int]],
    those: Sequence[Contender],
    done: frozenset[tuple[Place, int]],
) -> Iterator[Realised]:
    """Turns of everyone on texts of one setting, text by text and repeat by repeat; those that are done are left out.

    Args:
        engine: The pair.
        asked: What is measured.
        prompts: Token ids of the prompts, by their places; all of one setting.
        those: Who takes turns.
        done: Texts and repeats that need no turns.
    """
    places = list(prompts)
    texts = list(prompts.values())
    blocks: dict[tuple[Place, int], list[Turn]] = {}
    for turn in schedule(len(those), len(places), asked.repeats, asked.seed):
        blocks.setdefault((places[turn.prompt], turn.repeat), []).append(turn)
    left = [at for at in blocks if at not in done]
    if left:
        warmed_up(seeded(engine, asked, *left[0]), those, texts[:1], lambda _: None)
    for place, repeat in left:
        sampled, turns = seeded(engine, asked, place, repeat), blocks[place, repeat]
        turned = [
            Decoded(
                contender=sample.contender,
                tokens=sample.tally.timed_tokens,
                rounds=sample.tally.rounds,
                decode_s=sample.tally.decode_s,
                waited=sample.waited,
            )
            for sample in measured(sampled, those, texts, turns, attempts=1)
        ]
        yield Realised(place=place, repeat=repeat, turns=tuple(turned))


def seeded(engine: Engine, asked: Asked, place: Place, repeat: int = 0) -> Engine:
    """The pair with noise and coins that no other text has."""
    number = repeat * len(asked.places()) + asked.places().index(place)
    return engine.sampled(asked.seed + number, Schedule(asked.samplings[place.sampling]))


def _config(asked: Asked, sampling: Sampling, method: str, rules: Delayed | None = None) -> RunConfig:
    found = RunConfig(
        (method,),
        asked.max_new_tokens,
        asked.seed,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )
    return found if rules is None else found.with_rules(DRAWING, rules)
