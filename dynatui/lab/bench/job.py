"""Complete measurements of `dynatui bench speed`, from the loading of the models to the report.

A block consists of the turns of all contenders with one prompt and repeat. An interrupted measurement reports complete
blocks only. `measure_texts` and `measure_rounds` raise KeyboardInterrupt if no block is complete, and DecoderError if
the models or the device fail or a text is too long.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from decoder.engine import Engine
from decoder.errors import require
from decoder.knobs import TunableParameters
from decoder.methods import chosen, require_model_free, require_shared_tokens
from decoder.models.gguf.file import gguf_file
from decoder.models.heads import is_model_free
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import Schedule
from decoder.session.cuda_graph.static_shapes import passes
from decoder.tensor_parallel.check import require_partial_target
from decoder.tensor_parallel.ranks import ranks_here
from decoder.tree_rules import tree_rule
from dynatui.lab.bench import report, shapes
from dynatui.lab.bench.baselines import baselines, llama_cpp_baselines, require_measurable, require_vocabulary
from dynatui.lab.bench.contenders import Contender, inexact, sweep
from dynatui.lab.bench.machine import examined
from dynatui.lab.bench.on_pair import Done, Note, OnPair, Show, interrupted
from dynatui.lab.bench.protocol import Experiment, Sample, endless, longest_first, measured_into, mixed, warmed_up
from dynatui.lab.bench.shapes import Size, loaded_pair, random_prompt
from dynatui.lab.bench.summary import Samples


@dataclass(frozen=True)
class OnTexts(OnPair):
    """Request to measure methods and baselines on texts."""

    prompts: tuple[AnyPrompt, ...]
    config: RunConfig
    methods: tuple[str, ...]
    settings: Mapping[str, Mapping[str, TunableParameters]]
    """Parameters by method, then by the suffix of the contender's name."""
    exact: bool = False
    """Whether passes are batch-invariant. If so, `ar` and adaptive trees are also measured with ordinary passes."""
    compiled: bool = False
    """Whether compiled forward passes are tried; they are used only if they are faster than uncompiled passes."""
    kernels: bool = True
    """Whether custom kernels are tried for small parts of rounds; they are used only if they are faster than torch."""
    with_baselines: bool = True
    llama_cpp: str | None = None
    """GGUF file of the target's weights; its plain decoding in llama.cpp is measured, even without `with_baselines`."""
    random_draft: bool = False
    """Whether the draft guesses at random, so that drafting gains nothing."""
    repeats: int = 3


@dataclass(frozen=True)
class OnRounds:
    """Request to measure rounds with given tree sizes after random texts of given lengths."""

    load: Callable[..., Engine]
    """Function (passes=..., report=...) -> engine; the engine's draft guesses at random."""
    sizes: tuple[Size, ...]
    contexts: tuple[int, ...]
    """Lengths of the texts in tokens; round costs at each later length are compared with those at the first length."""
    config: RunConfig
    repeats: int = 9


def measure_texts(job: OnTexts, note: Note, show: Show = iter) -> Done[report.Report]:
    """Measures methods and baselines; `show` displays the progress."""
    if job.llama_cpp is not None:
        require_measurable(job.llama_cpp, job.target, job.config)
    if is_model_free(job.draft):
        require_model_free(job.methods)
    if ranks_here():
        require_partial_target(chosen(job.methods))
    load = loaded_pair if job.random_draft else load_pair
    engine = load(
        **job.pair_options,
        exact=job.exact,
        compiled=job.compiled,
        kernels=job.kernels,
        passes=passes(map(tree_rule, (None, *chain.from_iterable(each.values() for each in job.settings.values())))),
        report=note,
    )
    if engine.pair.translation:
        require_shared_tokens(job.methods, engine.pair.draft_name)
    engine = engine.sampled(
        job.config.seed, Schedule(job.config.sampling), draft_knows_noise=job.config.draft_knows_noise
    )
    pair = engine.pair
    context = pair.context
    if job.llama_cpp is not None:
        context = min(context, gguf_file(job.llama_cpp).size("context_length") or 0)
    prompts = encode_prompts(pair.tokenizer, job.prompts, job.config.max_new_tokens, context)
    contenders = sweep(job.methods, job.config, job.settings)
    if job.exact:
        contenders += inexact(contenders, engine.fastest())
    contenders += _others(job, pair, note)
    plan = Experiment(contenders, prompts, _warm_up(pair, prompts), job.repeats, job.config.seed)
    setup, samples, peaks, early = _measured(engine, plan, job.config, note, show)
    return Done(report.of_texts(setup, engine, samples, peaks), early)


def measure_rounds(job: OnRounds, note: Note, show: Show = iter) -> Done[report.RoundsReport]:
    """Measures rounds; `show` displays the progress."""
    contenders = shapes.contenders(job.config, job.sizes)
    loaded = job.load(passes=shapes.passes(job.config, job.sizes), report=note)
    engine = endless(loaded).sampled(job.config.seed, Schedule(job.config.sampling))
    pair = engine.pair
    in_torch = not any(model.computed_by for model in pair.models.values())
    require(
        in_torch,
        "rounds after random tokens need models in torch, but one model is a GGUF file; measure texts instead",
    )
    shapes.refuse_wider(job.sizes, pair.vocabulary)
    more = job.config.max_new_tokens + max((size.depth for size in job.sizes), default=0)
    prompts = [random_prompt(pair, length, more) for length in job.contexts]
    plan = Experiment(contenders, prompts, longest_first(prompts), job.repeats, job.config.seed, order=mixed)
    setup, samples, peaks, early = _measured(engine, plan, job.config, note, show)
    return Done(report.of_rounds(setup, pair, samples, peaks), early)


def _others(job: OnTexts, pair: Pair, note: Note) -> list[Contender]:
    """Requested contenders of other libraries; `note` receives the reason if transformers cannot decode with `pair`."""
    others: list[Contender] = []
    if job.with_baselines and any(model.computed_by for model in pair.models.values()):
        others += llama_cpp_baselines(pair, job.config, job.target, job.draft)
        note("transformers' own generation is left out: llama.cpp computes one of the models")
    elif job.with_baselines and not pair.target.ranks:
        others += baselines(pair, job.config)
    elif job.with_baselines:
        note("transformers' own generation is left out: it needs the whole target in one process")
    if job.llama_cpp is not None:
        require_vocabulary(job.llama_cpp, pair)
        others += llama_cpp_baselines(pair, job.config, job.llama_cpp, None)
    return others


def _warm_up(pair: Pair, prompts: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Prompts for warm-up: the first prompt on a CPU, and all prompts on an accelerator.

    On an accelerator, each new size needs a CUDA graph, and all graphs must be captured before the first measurement.
    """
    return prompts[:1] if pair.target.device.type == "cpu" else longest_first(prompts)


def _measured(
    engine: Engine, plan: Experiment, config: RunConfig, note: Note, show: Show
) -> tuple[report.Setup, Samples, list[int], bool]:
    """Setup and samples of an experiment, peak bytes of each rank, and whether the experiment was interrupted."""
    machine = examined(engine.pair.target.device)
    note(f"warming up: {', '.join(contender.name for contender in plan.contenders)}")
    ready = warmed_up(engine, plan, note)
    setup = report.setup(engine, machine, ready, config)
    taken: list[Sample] = []
    early = interrupted(show(measured_into(taken, engine, ready)))
    samples = Samples(taken, ready.contenders, sampling=config.sampling)
    if not samples.prompts:
        raise KeyboardInterrupt
    return setup, samples, [] if early else _peaks(engine.pair, samples), early


def _peaks(pair: Pair, samples: Samples) -> list[int]:
    """Peak memory of each rank in bytes; for the first rank, this is the highest peak of all turns."""
    if not pair.target.ranks:
        return []
    first, *others = pair.target.ranks.peak_bytes()
    return [max(first, *(turn.tally.peak_bytes or 0 for turn in samples.all())), *others]
