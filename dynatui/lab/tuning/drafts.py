"""Ranking of drafts for one target on a user's own prompts, by measured speed beside the speed that is predicted from
the draft's agreement with the target and the cost ratio of their passes.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

import msgspec
import torch

from decoder.analysis.bottleneck import Bottleneck, bottleneck
from decoder.analysis.interval import Interval
from decoder.analysis.metrics import together
from decoder.engine import Engine
from decoder.errors import ConfigError, DecoderError, ModelError, PairError, require
from decoder.forward.language_model import LanguageModel, fitted
from decoder.forward.taps import LayerStates
from decoder.heads.parts import StatesReader
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
from dynatui.lab.bench.samples import Samples

LONGEST_CHAIN = 16
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
    """Measured speed-up over plain decoding, by method; None if each text differed from the text of plain decoding."""
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
    """Raises DecoderError if texts are not greedy, no draft can be used with this target, or a prompt does not fit."""
    greedy = job.config.sampling.greedy
    require(greedy, "--temperature is not 0, but drafts are ranked on greedy texts; leave --temperature out")
    engines, refused = loaded(job, note)
    first = next(iter(engines.values())).pair
    config, context = job.config, min(engine.pair.context for engine in engines.values())
    prompts = encode_prompts(first.tokenizer, job.prompts, config.max_new_tokens, context, chat=config.chat)
    ratios = {name: cost_ratio(engine) for name, engine in engines.items()}
    note("decoding without a draft, to compute the agreement of each draft")
    base, engine = own(BASELINE, BASELINE, BASELINE, config), next(iter(engines.values()))
    texts = [list(base.run(engine, prompt).tally.tokens) for prompt in prompts]
    agreements = {name: agreement(each.pair, prompts, texts) for name, each in engines.items()}
    chains = {
        name: best_chain(agreements[name], ratios[name], guesses_at_once(each.pair)) for name, each in engines.items()
    }
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


def agreement(pair: Pair, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> float:
    return fmean(
        float(token == guess)
        for prompt, text in zip(prompts, texts, strict=True)
        for token, guess in zip(text, _guesses(pair, prompt, text), strict=True)
    )


@torch.inference_mode()
def _guesses(pair: Pair, prompt: Sequence[int], text: Sequence[int]) -> list[int]:
    """The draft's most probable token at every position of a text; -1 at positions where the draft cannot guess yet."""
    if pair.head:
        return _head_guesses(pair.target, pair.head, prompt, text)
    draft = fitted(pair.draft_model, pair.vocabulary)
    cache = draft.new_cache(len(prompt) + len(text))
    if len(prompt) > 1:
        draft.read(cache, prompt[:-1])
    logits = [draft.read(cache, [token])[None] for token in (prompt[-1], *text[:-1])]
    best: list[int] = torch.cat(logits).argmax(-1).tolist()
    return best


def _head_guesses(target: LanguageModel, head: StatesReader, prompt: Sequence[int], text: Sequence[int]) -> list[int]:
    whole, states, best = [*prompt, *text], LayerStates(head.target_layers), list[int]()
    tapped, passes = target.tapped(states), passes_of(head, len(whole), states)
    cache = tapped.new_cache(len(whole))
    if len(prompt) > 1:
        tapped.read(cache, prompt[:-1])
        passes.read(prompt[:-1])
    for end in range(len(prompt), len(whole)):
        known = whole[:end]
        best.append(int(passes.after_text(known).argmax()) if passes.behind(known) else -1)
        tapped.read(cache, known[-1:])
        passes.commit([])
    return best


def guesses_at_once(pair: Pair) -> int | None:
    """Largest number of levels that the draft computes in one pass; None if each level takes a pass of its own."""
    if pair.head is None:
        return None
    deepest = passes_of(pair.head, 1, LayerStates(pair.head.target_layers)).deepest
    return None if deepest == sys.maxsize else deepest


def cost_ratio(engine: Engine) -> float:
    """Time of a draft pass of one row divided by that of a target pass; if the draft computes all levels in one pass,
    of a draft pass that reads one token of text.
    """
    costs = engine.costs_of(engine.pair.context // 2)
    draft = costs.draft if guesses_at_once(engine.pair) is None else costs.catch_up
    return draft.seconds(1) / costs.plain.seconds(1)


def expected_speedup(agreement: float, ratio: float, chain: int, at_once: int | None = None) -> float:
    """Expected speed-up of a chain over plain decoding, if guesses are independent and extra target rows cost no time:
    (1 - a^(K+1)) / (1 - a) / (1 + K c), with agreement a, chain length K and cost ratio c (theorem 3.8 of Leviathan et
    al. 2023). If the draft computes `at_once` levels in one pass, c replaces K c.
    """
    tokens = sum(agreement**level for level in range(chain + 1))
    return tokens / (1 + (chain if at_once is None else min(chain, 1)) * ratio)


def best_chain(agreement: float, ratio: float, at_once: int | None = None) -> tuple[int, float]:
    """Length of the chain with the highest expected speed-up, 0 if no chain is faster, and this speed-up."""
    lengths = range(min(LONGEST_CHAIN, at_once or LONGEST_CHAIN) + 1)
    speeds = {chain: expected_speedup(agreement, ratio, chain, at_once) for chain in lengths}
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
