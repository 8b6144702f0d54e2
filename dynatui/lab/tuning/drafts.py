"""Ranks drafts for one target by measured speed on a user's own prompts, and predicts each draft's speed from its
acceptance rate at each position and the cost ratio of a draft pass to a target pass.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import numpy as np

from decoder.analysis.bottleneck import Bottleneck, bottleneck
from decoder.analysis.interval import Interval
from decoder.analysis.metrics import together
from decoder.engine import Engine
from decoder.errors import ConfigError, DecoderError, ModelError, PairError, require
from decoder.forward.taps import LayerStates
from decoder.methods.linear import Linear
from decoder.models.compatibility import tokenizers_of
from decoder.models.heads import is_model_free
from decoder.models.names import LOOKUP
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair, with_draft
from decoder.session.host import passes_of
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.on_pair import Note, Show
from dynatui.lab.bench.protocol import Experiment, Sample, measured_into, warmed_up
from dynatui.lab.bench.summary import Samples
from dynatui.lab.tuning.scoring import ScoredText, greedy_text, scored
from dynatui.lab.tuning.survival import FIRST, counted, grouped

METHODS = ("linear", "auto")
"""Methods with which every draft is measured: `linear` with the draft's best chain length, and `auto`."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    agreement: float
    """Share of the target's greedy tokens that equal the draft's most probable token."""
    cost_ratio: float
    """Time of a draft pass of one row divided by the time of a target pass of one row."""
    chain: int
    """Length of the chain with the highest expected speed; 0 if no chain is faster than plain decoding."""
    expected: float
    measured: Mapping[str, Interval | None]
    """Measured speed-up over plain decoding, by method; None if every text differed from the text of plain decoding."""
    limits: Bottleneck | None
    """Bottleneck of the fastest method; None if this method has too few rounds."""
    fastest: str


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    device: str
    dtype: str
    prompts: int
    max_new_tokens: int
    drafts: list[Draft]
    refused: dict[str, str]


@dataclass(frozen=True)
class OnDrafts:
    target: str
    drafts: tuple[str, ...]
    prompts: tuple[AnyPrompt, ...]
    config: RunConfig = field(default_factory=partial(RunConfig, max_new_tokens=128))
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"


def rank(job: OnDrafts, note: Note, show: Show = iter) -> Ranking:
    """Ranks drafts; raises DecoderError if sampling is not greedy, no draft is usable, or a prompt is too long."""
    greedy = job.config.sampling.greedy
    require(greedy, "--temperature is not 0, but drafts are ranked on greedy texts; leave --temperature out")
    engines, refused = loaded(job, note)
    first = next(iter(engines.values())).pair
    config, context = job.config, min(engine.pair.context for engine in engines.values())
    prompts = encode_prompts(first.tokenizer, job.prompts, config.max_new_tokens, context, chat=config.chat)
    ratios = {name: cost_ratio(engine) for name, engine in engines.items()}
    note("decoding without a draft, to compute the agreement of each draft")
    base, engine = own(BASELINE, BASELINE, BASELINE, config), next(iter(engines.values()))
    texts = [greedy_text(prompt, list(base.run(engine, prompt).tally.tokens)) for prompt in prompts]
    agreements, chains = dict[str, float](), dict[str, tuple[int, float]]()
    for name, each in engines.items():
        agreements[name], lengths = acceptance(each.pair, texts)
        chains[name] = best_chain(lengths, ratios[name], guesses_at_once(each.pair))
    lanes = [_bound(base, engine)]
    for name, each in engines.items():
        run = config.with_rules("linear", replace(config.of(Linear), k=max(1, chains[name][0])))
        lanes += [_bound(own(lane_name(name, method), method, method, run), each) for method in METHODS]
    plan, samples = Experiment(lanes, prompts, prompts[:1], seed=config.seed), list[Sample]()
    warmed_up(engine, plan, note)
    for _ in show(measured_into(samples, engine, plan)):
        pass
    whole = Samples(samples, lanes)
    results = [
        _draft(name, whole, config.seed, agreement=agreements[name], ratio=ratios[name], chain=chains[name])
        for name in engines
    ]
    return Ranking(
        target=first.target_name,
        device=first.device,
        dtype=first.dtype,
        prompts=len(prompts),
        max_new_tokens=config.max_new_tokens,
        drafts=sorted(results, key=lambda draft: -_speed(draft.measured[draft.fastest])),
        refused=refused,
    )


def lane_name(draft: str, method: str) -> str:
    return f"{draft} {method}"


def acceptance(pair: Pair, texts: Sequence[ScoredText]) -> tuple[float, list[float]]:
    """Share of the texts' tokens that the draft predicts, and tokens per round with chains of 1, 2, ... tokens."""
    places = [scored(pair, text) for text in texts]
    guessed = np.concatenate([each.accepted[FIRST:, 0] for each in places])
    found = grouped([counted(each).greedy for each in places], [""] * len(texts), seed=0)
    lengths = [found.at(k).mean_length for k in range(1, found.longest + 1)] if found else []
    return float(guessed.mean()) if len(guessed) else 0.0, lengths


def guesses_at_once(pair: Pair) -> int | None:
    """Largest number of levels that the draft computes in one pass; None if each level takes a pass of its own."""
    if pair.head is None:
        return None
    deepest = passes_of(pair.head, 1, LayerStates(pair.head.target_layers)).deepest
    return None if deepest == sys.maxsize else deepest


def cost_ratio(engine: Engine) -> float:
    """Time of a draft pass of one row divided by the time of a target pass of one row. If the draft computes several
    levels in one pass, the draft pass is a pass that reads one token of text.
    """
    costs = engine.costs_of(engine.pair.context // 2)
    draft = costs.draft if guesses_at_once(engine.pair) is None else costs.catch_up
    return draft.seconds(1) / costs.plain.seconds(1)


def best_chain(lengths: Sequence[float], ratio: float, at_once: int | None = None) -> tuple[int, float]:
    """Length of the chain with the highest expected speed-up, 0 if no chain is faster, and this speed-up.

    The speed-up is L(K) / (1 + K c), with the tokens per round L(K) in `lengths` and the cost ratio c, if extra target
    rows cost no time. If the draft computes `at_once` levels in one pass, c replaces K c.
    """
    passes = {k: k if at_once is None else 1 for k in range(1, 1 + len(lengths))}
    speeds = {0: 1.0} | {k: lengths[k - 1] / (1 + count * ratio) for k, count in passes.items()}
    best = max(speeds, key=lambda chain: speeds[chain])
    return best, speeds[best]


def loaded(job: OnDrafts, note: Note) -> tuple[dict[str, Engine], dict[str, str]]:
    """Engines of the usable drafts, and reasons why the other drafts are unusable; keys are names of drafts."""
    if not job.drafts:
        raise ConfigError("--drafts is empty; give hub ids or folders with commas between them")
    engines: dict[str, Engine] = {}
    refused: dict[str, DecoderError] = {}
    for name in dict.fromkeys(job.drafts):
        try:
            engines[name] = _engine(job, name, next(iter(engines.values()), None), note)
        except (ConfigError, ModelError) as error:
            note(f"{name} is left out: {error}")
            refused[name] = error
    if not engines:
        raise next(iter(refused.values()))
    return engines, {name: str(error) for name, error in refused.items()}


def _engine(job: OnDrafts, draft: str, loaded: Engine | None, note: Note) -> Engine:
    if not is_model_free(draft) and tokenizers_of(job.target, draft)[1]:
        raise PairError(
            f"{draft} does not have the tokenizer of {job.target}, but drafts are compared by how many of the "
            "target's tokens they guess; choose drafts with the target's tokenizer"
        )
    if loaded and draft == LOOKUP:
        return replace(loaded, pair=replace(loaded.pair, draft=None, head=None))
    if loaded:
        return with_draft(loaded, job.target, draft, draft_dtype=job.draft_dtype, report=note)
    return load_pair(job.target, draft, device=job.device, dtype=job.dtype, draft_dtype=job.draft_dtype, report=note)


def _bound(contender: Contender, engine: Engine) -> Contender:
    return replace(contender, run=lambda _, prompt: contender.run(engine, prompt))


def _draft(
    name: str, samples: Samples, seed: int, *, agreement: float, ratio: float, chain: tuple[int, float]
) -> Draft:
    speeds = {method: samples.ratio(lane_name(name, method), BASELINE, seed) for method in METHODS}
    fastest = max(METHODS, key=lambda method: _speed(speeds[method]))
    lane = lane_name(name, fastest)
    timed = samples.both(lane, BASELINE)
    drafted, plain = (
        together(turn.tally for prompt in timed for turn in samples.turns(one, prompt)) for one in (lane, BASELINE)
    )
    return Draft(
        name=name,
        agreement=agreement,
        cost_ratio=ratio,
        chain=chain[0],
        expected=chain[1],
        measured=speeds,
        limits=bottleneck(drafted, plain),
        fastest=fastest,
    )


def _speed(ratio: Interval | None) -> float:
    return ratio.value if ratio else 0.0
