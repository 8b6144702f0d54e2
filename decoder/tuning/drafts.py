"""Ranking of drafts for one target on a user's own prompts; the target is loaded once.

A draft's gain is predicted from the draft's agreement with the target and from the cost ratio of draft and target
passes. It is also measured, in turns with plain decoding. The report has the predicted gain, the measured gain and the
bottleneck of the pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

import torch

from decoder.analysis.bottleneck import bottleneck
from decoder.analysis.interval import Interval
from decoder.analysis.metrics import Tally, together
from decoder.bench.contenders import BASELINE, Contender, own
from decoder.bench.on_pair import Note
from decoder.bench.progress import Show
from decoder.bench.protocol import Experiment, Sample, measured_into, warmed_up
from decoder.bench.samples import Samples
from decoder.engine import Engine
from decoder.errors import ConfigError, DecoderError, ModelError, PairError, require
from decoder.methods.linear import Linear
from decoder.models.checkpoints import display_name
from decoder.models.compatibility import tokenizers_of
from decoder.models.drafts import is_model_free
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair, with_draft
from decoder.tuning.ranking import METHODS, Draft, Ranking

LONGEST_CHAIN = 16


@dataclass(frozen=True)
class OnDrafts:
    """Request to rank drafts."""

    target: str
    drafts: tuple[str, ...]
    prompts: tuple[str, ...]
    config: RunConfig = field(default_factory=partial(RunConfig, max_new_tokens=128))
    """Length limit and seed of the texts, which are greedy."""
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"


def rank(job: OnDrafts, note: Note, show: Show = iter) -> Ranking:
    """Loads one target and all drafts, and measures the drafts in turns; `show` displays the progress.

    Raises:
        DecoderError: Texts are not greedy, no draft can be used with this target, or a prompt does not fit.
    """
    require(job.config.sampling.greedy, "drafts are ranked on greedy texts; leave --temperature out")
    engines, refused = _loaded(job, note)
    first = next(iter(engines.values())).pair
    config, context = job.config, min(engine.pair.context for engine in engines.values())
    prompts = encode_prompts(first.tokenizer, job.prompts, config.max_new_tokens, context, chat=config.chat)
    ratios = {name: cost_ratio(engine) for name, engine in engines.items()}
    note("plain decoding, to compute the agreement of each draft")
    base = own(BASELINE, BASELINE, BASELINE, config)
    texts = [list(base.run(next(iter(engines.values())), prompt).tally.tokens) for prompt in prompts]
    agreements = {name: agreement(engine.pair, prompts, texts) for name, engine in engines.items()}
    chains = {name: best_chain(agreements[name], ratios[name]) for name in engines}
    runs = {
        name: config.with_rules("linear", replace(config.of(Linear), k=max(1, chain)))
        for name, (chain, _) in chains.items()
    }
    lanes = [_bound(base, next(iter(engines.values())))]
    lanes += [
        _bound(own(lane_name(name, method), method, method, runs[name]), engine)
        for name, engine in engines.items()
        for method in METHODS
    ]
    samples = _measured(next(iter(engines.values())), lanes, prompts, job, note, show)
    results = [
        _draft(name, samples, config.seed, agreement=agreements[name], ratio=ratios[name], chain=chains[name])
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
    """Name of the contender that decodes by this method with this draft."""
    return f"{draft} {method}"


def agreement(pair: Pair, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> float:
    """Share of the texts' tokens that are the draft's most probable token after all tokens before them."""
    return fmean(
        float(token == guess)
        for prompt, text in zip(prompts, texts, strict=True)
        for token, guess in zip(text, _guesses(pair, prompt, text), strict=True)
    )


@torch.inference_mode()
def _guesses(pair: Pair, prompt: Sequence[int], text: Sequence[int]) -> list[int]:
    """Most probable token of the draft at every position of a text."""
    cache = pair.draft_model.new_cache(len(prompt) + len(text))
    if len(prompt) > 1:
        pair.draft_model.read(cache, prompt[:-1])
    logits = [pair.draft_model.read(cache, [token])[None] for token in (prompt[-1], *text[:-1])]
    best: list[int] = pair.known(torch.cat(logits)).argmax(-1).tolist()
    return best


def cost_ratio(engine: Engine) -> float:
    """Time of a draft pass of one row divided by the time of a target pass of one row, on this machine."""
    costs = engine.costs_of(engine.pair.context // 2)
    return costs.draft.seconds(1) / costs.plain.seconds(1)


def expected_speedup(agreement: float, ratio: float, chain: int) -> float:
    """Expected speed-up of a chain over plain decoding, if guesses are independent and further target rows are free.

    The speed-up is the mean number of tokens per round divided by the round's time in units of one target pass:
    (1 - a^(K+1)) / (1 - a) / (1 + K c), with agreement a, chain length K and cost ratio c (theorem 3.8 of Leviathan et
    al. 2023). Guesses in one text are not independent, so the result is an estimate and not a bound.
    """
    tokens = sum(agreement**level for level in range(chain + 1))
    return tokens / (1 + chain * ratio)


def best_chain(agreement: float, ratio: float) -> tuple[int, float]:
    """Length of the chain with the highest expected speed-up, and this speed-up; length 0 if no chain is faster."""
    speeds = {chain: expected_speedup(agreement, ratio, chain) for chain in range(LONGEST_CHAIN + 1)}
    best = max(speeds, key=lambda chain: speeds[chain])
    return best, speeds[best]


def _loaded(job: OnDrafts, note: Note) -> tuple[dict[str, Engine], dict[str, str]]:
    """Engines of the usable drafts, and the reasons why the other drafts are unusable; both by the draft's name."""
    if not job.drafts:
        raise ConfigError("--drafts is empty; give hub ids or folders with commas between them")
    if heads := [display_name(name) for name in job.drafts if is_model_free(name)]:
        raise ConfigError(f"--drafts ranks whole models, and {heads[0]} is a drafting head; leave it out")
    engines: dict[str, Engine] = {}
    refused: dict[str, DecoderError] = {}
    for name in dict.fromkeys(job.drafts):
        try:
            engines[name] = _engine(job, name, next(iter(engines.values()), None), note)
        except (ModelError, PairError) as error:
            note(f"{name} is left out: {error}")
            refused[name] = error
    if not engines:
        raise next(iter(refused.values()))
    return engines, {name: str(error) for name, error in refused.items()}


def _engine(job: OnDrafts, draft: str, loaded: Engine | None, note: Note) -> Engine:
    _, of_draft = tokenizers_of(job.target, draft)
    if of_draft:
        raise PairError(
            f"{draft} has another tokenizer than {job.target}, and drafts are ranked by the target's tokens that they "
            "guess; choose drafts with the target's tokenizer"
        )
    if loaded:
        return with_draft(loaded, job.target, draft, draft_dtype=job.draft_dtype, report=note)
    return load_pair(job.target, draft, device=job.device, dtype=job.dtype, draft_dtype=job.draft_dtype, report=note)


def _bound(contender: Contender, engine: Engine) -> Contender:
    """Copy of a contender that decodes on this engine."""
    return replace(contender, run=lambda _, prompt: contender.run(engine, prompt))


def _measured(
    engine: Engine, lanes: Sequence[Contender], prompts: Sequence[Sequence[int]], job: OnDrafts, note: Note, show: Show
) -> Samples:
    plan = Experiment(lanes, prompts, prompts[:1], seed=job.config.seed)
    warmed_up(engine, plan, note)
    samples: list[Sample] = []
    for _ in show(measured_into(samples, engine, plan)):
        pass
    return Samples(samples, lanes)


def _draft(
    name: str, samples: Samples, seed: int, *, agreement: float, ratio: float, chain: tuple[int, float]
) -> Draft:
    speeds = {method: samples.ratio(lane_name(name, method), BASELINE, seed) for method in METHODS}
    fastest = max(METHODS, key=lambda method: _speed(speeds[method]))
    lane = lane_name(name, fastest)
    timed = samples.both(lane, BASELINE)
    return Draft(
        name=name,
        agreement=agreement,
        cost_ratio=ratio,
        chain=chain[0],
        expected=chain[1],
        measured=speeds,
        limits=bottleneck(_whole(samples, lane, timed), _whole(samples, BASELINE, timed)),
        fastest=fastest,
    )


def _whole(samples: Samples, lane: str, prompts: Sequence[int]) -> Tally:
    """Totals of a contender over all texts that it has decoded after these prompts."""
    return together(turn.tally for prompt in prompts for turn in samples.turns(lane, prompt))


def _speed(ratio: Interval | None) -> float:
    return ratio.value if ratio else 0.0
