"""A measurement from beginning to end: models are loaded, contenders warmed up, turns taken, samples summed up.

An interruption ends it early; what everyone went through until then is reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from decoder.bench import report, shapes
from decoder.bench.contenders import Contender, sweep
from decoder.bench.machine import examined
from decoder.bench.outside import baselines
from decoder.bench.protocol import Sample, measured, warmed_up
from decoder.bench.shapes import Size
from decoder.bench.summary import Samples
from decoder.config import DynaTree, Fixed, Linear, RunConfig
from decoder.models import Pair, load_pair
from decoder.text import encode_prompt, without_surrogates

Note = Callable[[str], None]
Told = TypeVar("Told", report.Report, report.ShapesReport)


@dataclass(frozen=True)
class OnTexts:
    """Methods and baselines on texts."""

    prompts: tuple[str, ...]
    config: RunConfig
    methods: tuple[str, ...]
    dynatrees: dict[str, DynaTree]
    chains: tuple[Linear, ...]
    trees: tuple[Fixed, ...]
    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    with_baselines: bool = True
    repeats: int = 3


@dataclass(frozen=True)
class OnShapes:
    """Rounds of given sizes on random weights."""

    target: str
    draft: str
    sizes: tuple[Size, ...]
    config: RunConfig
    device: str = "auto"
    dtype: str = "auto"
    context_length: int = 256
    repeats: int = 3


@dataclass(frozen=True)
class Done(Generic[Told]):
    """What a measurement brought."""

    report: Told
    interrupted: bool


def measure_texts(job: OnTexts, note: Note) -> Done[report.Report]:
    """Measures methods and baselines.

    Raises:
        DecoderError: A prompt does not fit, or models or device fail.
        KeyboardInterrupt: Nothing was complete yet when it came.
    """
    pair = load_pair(job.target, job.draft, device=job.device, dtype=job.dtype, report=note)
    length = job.config.max_new_tokens
    texts = map(without_surrogates, job.prompts)
    prompts = [encode_prompt(pair.tokenizer, text, length, pair.context, special=True) for text in texts]
    contenders = sweep(job.methods, job.config, job.dynatrees, job.chains, job.trees)
    if job.with_baselines:
        contenders += baselines(pair, length)
    setup, samples, interrupted = _measured(pair, contenders, prompts, job.config, job.repeats, note)
    return Done(report.of_texts(setup, pair, samples), interrupted)


def measure_shapes(job: OnShapes, note: Note) -> Done[report.ShapesReport]:
    """Measures rounds.

    Raises:
        DecoderError: There is no such shape or tree, or models or device fail.
        KeyboardInterrupt: Nothing was complete yet when it came.
    """
    contenders = shapes.contenders(job.config, job.sizes)
    note(f"making {job.target} and {job.draft} of random weights")
    pair = shapes.random_pair(job.target, job.draft, device=job.device, dtype=job.dtype)
    prompt = shapes.random_prompt(pair, job.context_length, job.config.max_new_tokens)
    setup, samples, interrupted = _measured(pair, contenders, [prompt], job.config, job.repeats, note)
    return Done(report.of_shapes(setup, pair, samples), interrupted)


def _measured(
    pair: Pair,
    contenders: Sequence[Contender],
    prompts: Sequence[Sequence[int]],
    config: RunConfig,
    repeats: int,
    note: Note,
) -> tuple[report.Setup, Samples, bool]:
    machine = examined(pair.target.device)
    note(f"warming up: {', '.join(contender.name for contender in contenders)}")
    ready = warmed_up(pair, contenders, prompts[0], note)
    setup = report.setup(pair, machine, ready, prompts, config, repeats)
    found: list[Sample] = []
    try:
        for sample in measured(pair, ready, prompts, repeats, config.seed):
            if len(found) % len(ready) == 0:
                note(f"repeat {sample.repeat + 1} of {repeats}, prompt {sample.prompt + 1} of {len(prompts)}")
            found.append(sample)
    except KeyboardInterrupt:
        if len(found) < len(ready):
            raise
        return setup, Samples(found, ready), True
    return setup, Samples(found, ready), False
