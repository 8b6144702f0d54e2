"""A measurement from beginning to end: models are loaded, contenders warmed up, turns taken, samples summed up.

An interruption ends it early; what everyone went through until then is reported.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, TypeVar

from decoder.bench import report, sizes
from decoder.bench.contenders import Contender, inexact, sweep
from decoder.bench.machine import examined
from decoder.bench.on_pair import OnPair
from decoder.bench.outside import baselines
from decoder.bench.protocol import Sample, Turn, measured, mixed, schedule, warmed_up
from decoder.bench.samples import Samples
from decoder.bench.shapes import loaded_pair, random_prompt
from decoder.bench.sizes import Size
from decoder.config import RunConfig
from decoder.engine import Engine
from decoder.knobs import TunableParameters
from decoder.loading import load_pair
from decoder.methods import chosen, require_model_free
from decoder.models.drafts import is_model_free
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.sampling.settings import Schedule
from decoder.session.cuda_graph.static_shapes import passes
from decoder.tensor_parallel.check import require_partial_target
from decoder.tree_rules import tree_rule

Note = Callable[[str], None]
Told = TypeVar("Told", report.Report, report.RoundsReport)


@dataclass(frozen=True)
class OnTexts(OnPair):
    """Methods and baselines on texts."""

    prompts: tuple[str, ...]
    config: RunConfig
    methods: tuple[str, ...]
    settings: Mapping[str, Mapping[str, TunableParameters]]
    """Parameters by method, then by what tells them apart."""
    exact: bool = False
    """Whether methods agree bit for bit; then ar and dynatree are measured without that too."""
    compiled: bool = False
    """Whether compiled passes are tried, and kept where they are faster."""
    tensor_parallel: int = 1
    """Processes that the target is spread over; of several, this one leads, and baselines are left out."""
    with_baselines: bool = True
    random_draft: bool = False
    """Whether the draft guesses at random, so that nothing can be gained."""
    repeats: int = 3


@dataclass(frozen=True)
class OnRounds:
    """Rounds of given sizes after random texts of given lengths, with a draft that guesses at random."""

    load: Callable[..., Engine]
    """(passes=..., report=...) -> such a pair."""
    sizes: tuple[Size, ...]
    contexts: tuple[int, ...]
    """Tokens of the texts; the first is what the others are compared with."""
    config: RunConfig
    repeats: int = 9


@dataclass(frozen=True)
class Done(Generic[Told]):
    """What a measurement brought."""

    report: Told
    interrupted: bool


@dataclass(frozen=True)
class Plan:
    """Who decodes what, and when."""

    contenders: Sequence[Contender]
    prompts: Sequence[Sequence[int]]
    warm_up: Sequence[Sequence[int]]
    """Prompts that everyone decodes without counting before."""
    order: Callable[[int, int, int, int], Iterable[Turn]]
    """(contenders, prompts, repeats, seed) -> all turns."""
    repeats: int


def measure_texts(job: OnTexts, note: Note) -> Done[report.Report]:
    """Measures methods and baselines.

    Raises:
        DecoderError: A prompt does not fit, or models or device fail.
        KeyboardInterrupt: Nothing was complete yet when it came.
    """
    if is_model_free(job.draft):
        require_model_free(job.methods)
    if job.tensor_parallel > 1:
        require_partial_target(chosen(job.methods))
    load = loaded_pair if job.random_draft else load_pair
    engine = load(
        **job.pair_options,
        exact=job.exact,
        compiled=job.compiled,
        tensor_parallel=job.tensor_parallel,
        passes=passes(map(tree_rule, (None, *chain.from_iterable(each.values() for each in job.settings.values())))),
        report=note,
    )
    engine = engine.sampled(
        job.config.seed, Schedule(job.config.sampling), draft_knows_noise=job.config.draft_knows_noise
    )
    pair = engine.pair
    prompts = encode_prompts(pair.tokenizer, job.prompts, job.config.max_new_tokens, pair.context)
    contenders = sweep(job.methods, job.config, job.settings)
    if job.exact:
        contenders += inexact(contenders, engine.fastest())
    if job.with_baselines and not pair.target.ranks:
        contenders += baselines(pair, job.config)
    elif job.with_baselines:
        note("transformers' own generation is left out: it needs the whole target in one process")
    plan = Plan(contenders, prompts, _warm_up(pair, prompts), schedule, job.repeats)
    setup, samples, interrupted = _measured(engine, plan, job.config, note)
    peaks = [] if interrupted else _peaks(pair, samples)
    return Done(report.of_texts(setup, engine, samples, peaks), interrupted)


def measure_rounds(job: OnRounds, note: Note) -> Done[report.RoundsReport]:
    """Measures rounds.

    Raises:
        DecoderError: There is no such tree, a text is too long, or models or device fail.
        KeyboardInterrupt: Nothing was complete yet when it came.
    """
    contenders = sizes.contenders(job.config, job.sizes)
    loaded = job.load(passes=sizes.passes(job.config, job.sizes), report=note)
    pair = replace(loaded.pair, eos=frozenset())  # every turn has as many rounds
    engine = replace(loaded, pair=pair).sampled(job.config.seed, Schedule(job.config.sampling))
    sizes.refuse_wider(job.sizes, pair.vocabulary)
    more = job.config.max_new_tokens + max((size.depth for size in job.sizes), default=0)
    prompts = [random_prompt(pair, length, more) for length in job.contexts]
    plan = Plan(contenders, prompts, _longest_first(prompts), mixed, job.repeats)
    setup, samples, interrupted = _measured(engine, plan, job.config, note)
    peaks = [] if interrupted else _peaks(pair, samples)
    return Done(report.of_rounds(setup, pair, samples, peaks), interrupted)


def _peaks(pair: Pair, samples: Samples) -> list[int]:
    """Most memory in use by rank; the first begins anew with each turn."""
    if not pair.target.ranks:
        return []
    first, *others = pair.target.ranks.peak_bytes()
    return [max(first, *(turn.tally.peak_bytes or 0 for turn in samples.all())), *others]


def _warm_up(pair: Pair, prompts: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """One prompt on a CPU; on an accelerator all, because new lengths and sizes are captured when they first come."""
    return prompts[:1] if pair.target.device.type == "cpu" else _longest_first(prompts)


def _longest_first(prompts: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """What is captured over memory for a short text is lost when a longer one comes."""
    return sorted(prompts, key=len, reverse=True)


def _measured(engine: Engine, plan: Plan, config: RunConfig, note: Note) -> tuple[report.Setup, Samples, bool]:
    machine = examined(engine.pair.target.device)
    note(f"warming up: {', '.join(contender.name for contender in plan.contenders)}")
    ready = warmed_up(engine, plan.contenders, plan.warm_up, note)
    setup = report.setup(engine, machine, ready, plan.prompts, config, plan.repeats)
    turns = list(plan.order(len(ready), len(plan.prompts), plan.repeats, config.seed))
    found: list[Sample] = []
    interrupted = False
    try:
        for sample in measured(engine, ready, plan.prompts, turns):
            found.append(sample)
            if len(found) % len(ready) == 0:
                note(f"{len(found)} of {len(turns)} turns")
    except KeyboardInterrupt:
        interrupted = True
    samples = Samples(found, ready, sampling=config.sampling)
    if not samples.prompts:
        raise KeyboardInterrupt
    return setup, samples, interrupted
