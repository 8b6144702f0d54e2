"""Complete measurements of `dynatui bench speed`, from the loading of the models to the report, as `--json` writes it.

A block consists of the turns of all contenders with one prompt and repeat. An interrupted measurement reports complete
blocks only. `measure_texts` and `measure_rounds` raise KeyboardInterrupt if no block is complete, and DecoderError if
the models or the device fail or a text is too long.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import msgspec

from decoder.analysis.metrics import figures
from decoder.engine import Engine
from decoder.errors import require
from decoder.events import Figures, place
from decoder.forward.language_model import LanguageModel
from decoder.knobs import TunableParameters
from decoder.methods import chosen, require_model_free, require_shared_tokens
from decoder.models.gguf_file import gguf_file
from decoder.models.heads import is_model_free
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.decoding_path import decoding_path
from decoder.run.loading import load_pair
from decoder.sampling.settings import Schedule
from decoder.session.cuda_graph.static_shapes import passes
from decoder.tensor_parallel.check import require_partial_target
from decoder.tensor_parallel.ranks import ranks_here
from decoder.tree_rules import tree_rule
from dynatui.lab.bench import Done, Note, PairRequest, Progress, Show, interrupted, pair_names
from dynatui.lab.bench.baselines import baselines, llama_cpp_baselines, require_measurable, require_vocabulary
from dynatui.lab.bench.contenders import BASELINE, Arithmetic, Contender, Work, inexact, shape, sweep
from dynatui.lab.bench.machine import Machine, examined, load, read_bytes, utc_now
from dynatui.lab.bench.protocol import Experiment, Sample, endless, longest_first, measured, mixed, warmed_up
from dynatui.lab.bench.rounds import Growth, Rounds, Size, growth, refuse_wider, rounds, sized_contenders, sized_passes
from dynatui.lab.bench.shapes import loaded_pair, random_prompt
from dynatui.lab.bench.summary import (
    Bandwidth,
    Comparison,
    Difference,
    Row,
    Samples,
    comparisons,
    differences,
    near_tie_judge,
    rows,
)
from dynatui.session import Models

SCHEMA = 1
OF_SAMPLE = ("contender", "group", "prompt", "repeat", "kv_bytes", "waits", "waited")
"""Fields of `Record` that are those of `Sample`."""


class Setup(PairRequest, frozen=True, kw_only=True):
    """Models, machine and settings of a measurement."""

    schema: int = SCHEMA
    started_at: str
    """Start of the measurement in UTC, as ISO 8601."""
    machine: Machine
    ranks: list[str] = msgspec.field(default_factory=list)
    """Device of each process that runs the target; empty if one process runs it."""
    exact: bool = False
    """Whether passes are batch-invariant, so that all methods compute bit-identical logits."""
    path: str = ""
    """Name of the decoding path (see `decoder.run.decoding_path`); `path_reason` is why this path was chosen."""
    path_reason: str = ""
    passes: dict[str, str] = msgspec.field(default_factory=dict)
    """What computed the forward passes of each model: "compiled" (the engine's own code), "torch" or "llama.cpp"."""
    contenders: dict[str, dict[str, Any]]
    """All parameters of each contender, by contender name."""
    prompts: list[list[int]]
    max_new_tokens: int
    repeats: int
    temperature: float = 0.0
    """Above 0, other libraries draw other random numbers, so their texts are not compared with the texts of `ar`."""
    top_k: int = 0
    top_p: float = 1.0

    @property
    def place(self) -> str:
        """Device of the pair as text, or the devices of all processes if the target is split over several processes."""
        return place(self.device, self.ranks)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one turn, as in `Sample`; `figures` compares the text with the text of `ar` in the same block."""

    contender: str
    group: str
    prompt: int
    repeat: int
    figures: Figures
    models_s: float | None
    """Part of `decode_s` spent in calls of both models; None if unknown."""
    target_work: Work | None
    """Work of the target's calls after prefill; None if unknown."""
    draft_work: Work | None
    kv_bytes: int | None
    waits: int | None
    waited: float | None


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that `Report` and `RoundsReport` share."""

    setup: Setup
    load_after: float | None
    peak_bytes_by_rank: list[int] = []
    """Peak memory of each process of the target; empty if one process runs the target, or if a process could not
    report its peak.
    """


class Report(Common, frozen=True, kw_only=True):
    """Report of methods and baselines on texts."""

    rows: list[Row]
    best_generate: str | None
    comparisons: list[Comparison]
    differences: list[Difference]
    texts: dict[int, list[int]]
    """Token ids of the text of `ar`, by prompt number."""
    samples: list[Record]


class RoundsReport(Common, frozen=True, kw_only=True):
    """Report of rounds with trees of given sizes after texts of given lengths."""

    arithmetic: Arithmetic
    rounds: list[Rounds]
    growth: list[Growth]
    """Growth of the cost of rounds with the length of the text, relative to the cost at the first length."""
    samples: list[Record]


@dataclass(frozen=True)
class OnTexts:
    """Request to measure methods and baselines on texts. With `models.exact`, `ar` and adaptive trees are also measured
    with ordinary passes.
    """

    models: Models
    prompts: tuple[AnyPrompt, ...]
    config: RunConfig
    methods: tuple[str, ...]
    settings: Mapping[str, Mapping[str, TunableParameters]]
    """Parameters by method, then by the suffix of the contender's name."""
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


def measure_texts(job: OnTexts, note: Note, show: Show = iter) -> Done[Report]:
    if job.llama_cpp is not None:
        require_measurable(job.llama_cpp, job.models.target, job.config)
    if is_model_free(job.models.draft):
        require_model_free(job.methods)
    if ranks_here():
        require_partial_target(chosen(job.methods))
    load = loaded_pair if job.random_draft else load_pair
    engine = load(
        **vars(job.models),
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
    if job.models.exact:
        contenders += inexact(contenders, engine.fastest())
    contenders += _others(job, pair, note)
    plan = Experiment(contenders, prompts, _warm_up(pair, prompts), job.repeats, job.config.seed)
    samples, common, early = _measured(engine, plan, job.config, note, show)
    seed, bandwidth = job.config.seed, _bandwidth(common["setup"], pair)
    report = Report(
        **common,
        rows=rows(samples, seed, bandwidth),
        best_generate=samples.best(("generate",), seed),
        comparisons=comparisons(samples, seed),
        differences=differences(samples, near_tie_judge(engine, prompts)),
        texts={prompt: list(text) for prompt, text in samples.texts.items()},
    )
    return Done(report, early)


def measure_rounds(job: OnRounds, note: Note, show: Show = iter) -> Done[RoundsReport]:
    contenders = sized_contenders(job.config, job.sizes)
    loaded = job.load(passes=sized_passes(job.config, job.sizes), report=note)
    engine = endless(loaded).sampled(job.config.seed, Schedule(job.config.sampling))
    pair = engine.pair
    in_torch = not any(model.computed_by for model in pair.models.values())
    require(
        in_torch,
        "rounds after random tokens need models in torch, but one model is a GGUF file; measure texts instead",
    )
    refuse_wider(job.sizes, pair.vocabulary)
    more = job.config.max_new_tokens + max((size.depth for size in job.sizes), default=0)
    prompts = [random_prompt(pair, length, more) for length in job.contexts]
    plan = Experiment(contenders, prompts, longest_first(prompts), job.repeats, job.config.seed, order=mixed)
    samples, common, early = _measured(engine, plan, job.config, note, show)
    seed, bandwidth = job.config.seed, _bandwidth(common["setup"], pair)
    arithmetic = Arithmetic(shape(pair.target.hf.skeleton), shape(pair.draft_model.hf.skeleton))
    report = RoundsReport(
        **common,
        arithmetic=arithmetic,
        rounds=rounds(samples, job.contexts, seed, arithmetic, bandwidth),
        growth=growth(samples, job.contexts, seed, arithmetic),
    )
    return Done(report, early)


def _others(job: OnTexts, pair: Pair, note: Note) -> list[Contender]:
    """Requested contenders of other libraries; `note` receives the reason if transformers cannot decode with `pair`."""
    others: list[Contender] = []
    if job.with_baselines and any(model.computed_by for model in pair.models.values()):
        others += llama_cpp_baselines(pair, job.config, job.models.target, job.models.draft)
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
) -> tuple[Samples, dict[str, Any], bool]:
    """Samples of an experiment, the fields that all reports share, and whether the experiment was interrupted."""
    machine = examined(engine.pair.target.device)
    note(f"warming up: {', '.join(contender.name for contender in plan.contenders)}")
    ready = warmed_up(engine, plan, note)
    setup = _setup(engine, machine, ready, config)
    taken, turns = list[Sample](), ready.turns()

    def steps() -> Iterator[Progress]:
        for number, sample in enumerate(measured(engine, ready, turns), 1):
            taken.append(sample)
            yield Progress(f"{number} of {len(turns)} turns", number / len(turns))

    early = interrupted(show(steps()))
    samples = Samples(taken, ready.contenders, sampling=config.sampling)
    if not samples.prompts:
        raise KeyboardInterrupt
    peaks = [] if early else _peaks(engine.pair, samples)
    common = {"setup": setup, "load_after": load(), "peak_bytes_by_rank": peaks, "samples": _records(samples)}
    return samples, common, early


def _peaks(pair: Pair, samples: Samples) -> list[int]:
    """Peak memory of each rank in bytes; for the first rank, this is the highest peak of all turns."""
    if not pair.target.ranks:
        return []
    first, *others = pair.target.ranks.peak_bytes()
    return [max(first, *(turn.tally.peak_bytes or 0 for turn in samples.all())), *others]


def _setup(engine: Engine, machine: Machine, plan: Experiment, config: RunConfig) -> Setup:
    path, pair = decoding_path(engine), engine.pair
    return Setup(
        started_at=utc_now(),
        machine=machine,
        **pair_names(pair),
        ranks=list(pair.target.ranks.devices) if pair.target.ranks else [],
        exact=engine.exact,
        path=path.name,
        path_reason=path.reason,
        passes={role: _computed_by(model) for role, model in pair.models.items()},
        contenders={contender.name: dict(contender.settings) for contender in plan.contenders},
        prompts=[list(prompt) for prompt in plan.prompts],
        max_new_tokens=config.max_new_tokens,
        repeats=plan.repeats,
        seed=config.seed,
        **asdict(config.sampling),
    )


def _computed_by(model: LanguageModel) -> str:
    compiled = model.device.type == "cpu" and not model.by_torch_threads
    return model.computed_by or ("compiled" if compiled else "torch")


def _bandwidth(setup: Setup, pair: Pair) -> Bandwidth | None:
    """Bytes per pass and copy bandwidth; None without CUDA, with several target processes, or with llama.cpp."""
    copied = setup.machine.copy_bytes_per_s
    in_torch = not any(model.computed_by for model in pair.models.values())
    if copied is None or pair.target.ranks or not in_torch:
        return None
    return Bandwidth(read_bytes(pair.target), read_bytes(pair.draft) if pair.draft else 0, copied)


def _records(samples: Samples) -> list[Record]:
    plain = {(turn.repeat, turn.prompt): turn.tally for turn in samples.all() if turn.contender == BASELINE}
    return [
        Record(
            figures=figures(turn.tally, plain[turn.repeat, turn.prompt], same_until=samples.until(turn)),
            models_s=turn.seen.models_s if turn.seen else None,
            target_work=turn.seen.target if turn.seen else None,
            draft_work=turn.seen.draft if turn.seen else None,
            **{name: getattr(turn, name) for name in OF_SAMPLE},
        )
        for turn in samples.all()
    ]
