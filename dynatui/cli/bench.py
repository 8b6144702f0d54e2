"""`dynatui bench`: measures, prints tables, and keeps everything in a file.

What is measured, and how, is decided in `decoder.bench`; here are the options, and what they mean together. Imports no
torch before it is known what to do.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer import Option

from decoder.config import PRESETS, Fixed, Linear, RunConfig, require
from decoder.errors import ConfigError, PromptError
from decoder.methods import METHODS, chosen
from dynatui.cli import options, request, settings, streams
from dynatui.cli.headless import INTERRUPTED

ALL_METHODS = ",".join(name for name in METHODS if name != "hf")
"""hf is among the baselines, which run without a thread of their own."""
OTHERS = "Measurement"
WITHOUT_TEXTS = ("target", "draft", "prompt_files", "prompt_texts", "prompt_chars", "methods", "linear", "fixed")
"""Parameters that say nothing to random weights."""
ONLY_SHAPES = ("trees", "context_length")

app = typer.Typer()

Shapes = Annotated[
    str | None,
    Option(
        metavar="TARGET:DRAFT",
        rich_help_panel=options.MODELS,
        help="Random weights of these shapes instead, for example pythia-2.8b:pythia-70m, or a config.json each.",
    ),
]
PromptChars = Annotated[
    int | None,
    Option(metavar="N", min=1, rich_help_panel=options.PROMPTS, help="Only the first N characters of each prompt."),
]
Methods = Annotated[
    str,
    Option(metavar="NAMES", rich_help_panel=OTHERS, help=f"Which to measure beside ar, of {ALL_METHODS}."),
]
Presets = Annotated[
    str,
    Option("--preset", metavar="NAMES", rich_help_panel=options.TREE, help=f"One or more of {', '.join(PRESETS)}."),
]
Chains = Annotated[
    str, Option("--linear", metavar="K,K,..", rich_help_panel=OTHERS, help="Lengths of linear's chain to measure.")
]
Trees = Annotated[
    str, Option("--fixed", metavar="DxB,..", rich_help_panel=OTHERS, help="Depths and branchings of fixed trees.")
]
Sizes = Annotated[
    str,
    Option(
        "--trees", metavar="DxN,..", rich_help_panel=OTHERS, help="With --shapes: levels and verified rows of trees."
    ),
]
ContextLength = Annotated[
    int, Option("--context", metavar="N", min=1, rich_help_panel=OTHERS, help="With --shapes: tokens of the prompt.")
]
Repeats = Annotated[
    int, Option(metavar="R", min=1, max=1000, rich_help_panel=OTHERS, help="Times that each prompt is decoded.")
]
Baselines = Annotated[
    bool,
    Option(
        "--baselines/--no-baselines",
        rich_help_panel=OTHERS,
        help="Whether transformers' greedy and assisted generation are measured as well.",
    ),
]
JsonFile = Annotated[
    Path | None,
    Option(
        "--json",
        metavar="FILE",
        rich_help_panel=OTHERS,
        help="Add a line to FILE with every sample, all settings and the machine.",
    ),
]


@app.callback()
def bench() -> None:
    """Measure decoding speed."""


@app.command()
@settings.configured
def speed(
    context: typer.Context,
    *,
    target: options.Target = None,
    draft: options.Draft = None,
    shapes: Shapes = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    prompt_files: options.PromptFiles = None,
    prompt_texts: options.PromptTexts = None,
    prompt_chars: PromptChars = None,
    methods: Methods = ALL_METHODS,
    linear: Chains = str(Linear.k),
    fixed: Trees = f"{Fixed.depth}x{Fixed.branching}",
    trees: Sizes = "1x2,2x4,4x8,4x16,8x32,8x64",
    context_length: ContextLength = 256,
    max_new_tokens: options.MaxNewTokens = None,
    repeats: Repeats = 3,
    seed: options.Seed = 0,
    baselines: Baselines = True,
    json_file: JsonFile = None,
    preset: Presets = "paper",
    history: options.History = None,
    tau_h: options.TauH = None,
    tau_l: options.TauL = None,
    d0: options.D0 = None,
    d_max: options.DMax = None,
    branching: options.Branching = None,
    rho_stop: options.RhoStop = None,
    rho_deep: options.RhoDeep = None,
    tau: options.Tau = None,
    n_max: options.NMax = None,
    selection: options.Selection = None,
) -> int:
    """Measure every method, and transformers' own generation, side by side on the same prompts.

    All run in one process on the same weights, turn by turn after a warm-up. A text that differs from ar's has no
    speed.
    """
    _refuse_contradictions(context, with_shapes=shapes is not None)
    rules = {"history": history, "tau_h": tau_h, "tau_l": tau_l, "d0": d0, "d_max": d_max, "branching": branching}
    rules |= {"rho_stop": rho_stop, "rho_deep": rho_deep, "tau": tau, "n_max": n_max, "selection": selection}
    runs = _runs(preset, {"max_new_tokens": max_new_tokens, "seed": seed, **rules})
    config = next(iter(runs.values()))
    measure: Callable[[], Measured]
    if shapes is None:
        texts = _cut(request.prompts(request.prompt_files(prompt_files), prompt_texts), prompt_chars)
        measure = partial(
            _on_texts,
            prompts=texts,
            config=config,
            methods=_methods(methods),
            dynatrees={name: run.dynatree for name, run in runs.items()},
            chains=tuple(Linear(k) for (k,) in _lists("--linear", linear, example="5")),
            trees=tuple(
                replace(config.fixed, depth=d, branching=b) for d, b in _lists("--fixed", fixed, example="5x2")
            ),
            target=target,
            draft=draft,
            with_baselines=baselines,
        )
    else:
        target_shape, draft_shape = _two(shapes)
        measure = partial(
            _on_shapes,
            target=target_shape,
            draft=draft_shape,
            sizes=_lists("--trees", trees, example="8x64"),
            config=config,
            context_length=context_length,
        )
    return _told(partial(measure, device=device, dtype=dtype, repeats=repeats), json_file)


@dataclass(frozen=True)
class Measured:
    """What is printed, what is kept, and how it ended."""

    table: str
    report: object
    interrupted: bool


def _on_texts(**given: Any) -> Measured:
    from decoder.bench import job, table  # noqa: PLC0415 - imports torch

    done = job.measure_texts(job.OnTexts(**given), streams.say)
    return Measured(table.on_texts(done.report), done.report, done.interrupted)


def _on_shapes(*, sizes: tuple[tuple[int, ...], ...], **given: Any) -> Measured:
    from decoder.bench import job, table  # noqa: PLC0415 - imports torch
    from decoder.bench.shapes import Size  # noqa: PLC0415

    trees = tuple(Size(*size) for size in sizes)
    done = job.measure_shapes(job.OnShapes(sizes=trees, **given), streams.say)
    return Measured(table.on_shapes(done.report), done.report, done.interrupted)


def _told(measure: Callable[[], Measured], path: Path | None) -> int:
    """Measures and tells; whether the file can be written shows before, for a measurement takes minutes."""
    if path is not None:
        _append(path, b"")
    done = measure()
    out, _ = streams.for_printing()
    streams.show(done.table, out)
    if path is not None:
        _append(path, msgspec.json.encode(done.report) + b"\n")
    return INTERRUPTED if done.interrupted else 0


def _append(path: Path, content: bytes) -> None:
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; let --json name another file") from None


def _refuse_contradictions(context: typer.Context, *, with_shapes: bool) -> None:
    """Options that would say nothing."""
    idle, why = (WITHOUT_TEXTS, "beside --shapes") if with_shapes else (ONLY_SHAPES, "without --shapes")
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in idle and source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"{parameter.opts[0]} has no effect {why}; leave it out")


def _runs(presets: str, given: dict[str, Any]) -> dict[str, RunConfig]:
    """The parameters of each preset that was named."""
    nothing: dict[str, Any] = dict.fromkeys(("methods", "chat", "k", "fixed"))
    return {name: request.run_config(preset=name, **nothing, **given) for name in map(str.strip, presets.split(","))}


def _methods(names: str) -> tuple[str, ...]:
    found = tuple(method.name for method in chosen([name.strip() for name in names.split(",")]))
    require("hf" not in found, "hf is measured as the baseline assisted; leave it out of --methods")
    return tuple(dict.fromkeys(found))


def _cut(prompts: tuple[str, ...], length: int | None) -> tuple[str, ...]:
    """The beginning of each, without the blanks around the whole: as the DynaTree paper cuts its texts."""
    if length is None:
        return prompts
    beginnings = tuple(prompt.strip()[:length] for prompt in prompts)
    if not all(beginnings):
        raise PromptError("a prompt is empty but for blanks; give one with words")
    return beginnings


def _two(shapes: str) -> tuple[str, str]:
    target, colon, draft = shapes.partition(":")
    if not (target and colon and draft):
        raise ConfigError(f"--shapes is {shapes!r}; give target and draft, for example pythia-2.8b:pythia-70m")
    return target, draft


def _lists(option: str, text: str, *, example: str) -> tuple[tuple[int, ...], ...]:
    """Groups of whole numbers with commas between the groups, each of as many numbers as the example has."""
    groups = [part.strip().split("x") for part in text.split(",")]
    with suppress(ValueError):
        found = tuple(dict.fromkeys(tuple(map(int, group)) for group in groups))
        if all(len(group) == len(example.split("x")) for group in found):
            return found
    raise ConfigError(f"{option} is {text!r}; give {example}, or several with commas between them")
