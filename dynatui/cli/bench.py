"""`dynatui bench`: what its options ask for, and what they mean together.

What is measured, and how, is decided in `decoder.bench`. Imports no torch before it is known what to do.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import typer

from decoder.config import Fixed, Linear, RunConfig
from decoder.errors import ConfigError, PromptError, quoted, require
from decoder.methods import chosen
from dynatui.cli import bench_options, options, request, settings
from dynatui.cli.bench_result import Measured, run_and_report
from dynatui.terminal import streams

ONLY_TEXTS = ("methods", "linear", "fixed", "baselines", "hostile")
"""Parameters that say nothing to rounds of given sizes; nor do those under these headings:"""
ABOUT_TEXTS = (options.PROMPTS, options.TREE)
ONLY_ROUNDS = ("trees",)
ONLY_LOADED = ("target", "draft")
"""Parameters that say nothing to random weights."""
OF_A_METHOD = ("linear", "fixed")
"""Parameters that say nothing where the method of this name is not measured."""
LARGEST = 1 << 20
"""Of all numbers in lists; beyond every model's context."""

app = typer.Typer()


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
    shapes: bench_options.Shapes = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    exact: options.Exact = False,
    compiled: options.Compiled = False,
    prompt_files: options.PromptFiles = None,
    prompt_texts: options.PromptTexts = None,
    prompt_chars: bench_options.PromptChars = None,
    methods: bench_options.Methods = bench_options.ALL_METHODS,
    linear: bench_options.Chains = str(Linear.k),
    fixed: bench_options.Trees = f"{Fixed.depth}x{Fixed.branching}",
    trees: bench_options.Sizes = "1x2,2x4,4x8,4x16,8x32,8x64",
    context_length: bench_options.Contexts = None,
    max_new_tokens: options.MaxNewTokens = None,
    repeats: bench_options.Repeats = None,
    seed: options.Seed = 0,
    baselines: bench_options.Baselines = True,
    hostile: bench_options.Hostile = False,
    json_file: bench_options.JsonFile = None,
    preset: bench_options.Presets = "tuned,paper",
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
    on_rounds = shapes is not None or context_length is not None
    with_shapes = shapes is not None
    idle = _idle_for_rounds(context, with_shapes=with_shapes) if on_rounds else _idle_for_texts(_methods(methods))
    _refuse_idle(context, idle)
    rules = {"history": history, "tau_h": tau_h, "tau_l": tau_l, "d0": d0, "d_max": d_max, "branching": branching}
    rules |= {"rho_stop": rho_stop, "rho_deep": rho_deep, "tau": tau, "n_max": n_max, "selection": selection}
    length = bench_options.ROUNDS if on_rounds and max_new_tokens is None else max_new_tokens
    runs = _runs(preset, {"max_new_tokens": length, "seed": seed, **rules})
    config = next(iter(runs.values()))
    measure: Callable[[], Measured]
    if on_rounds:
        measure = partial(
            _on_rounds,
            shapes=None if shapes is None else _two(shapes),
            target=target,
            draft=draft,
            device=device,
            dtype=dtype,
            sizes=_lists("--trees", trees, example="8x64"),
            contexts=_contexts(bench_options.CONTEXT if context_length is None else context_length),
            config=config,
            exact=exact,
            compiled=compiled,
            repeats=repeats or bench_options.ROUND_REPEATS,
        )
    else:
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
            device=device,
            dtype=dtype,
            exact=exact,
            compiled=compiled,
            with_baselines=baselines,
            random_draft=hostile,
            repeats=repeats or bench_options.TEXT_REPEATS,
        )
    return run_and_report(measure, json_file)


def _on_texts(**given: Any) -> Measured:
    from decoder.bench import job, table  # noqa: PLC0415 - imports torch

    done = job.measure_texts(job.OnTexts(**given), streams.say)
    return Measured(table.on_texts(done.report), done.report, done.interrupted)


def _on_rounds(
    *,
    shapes: tuple[str, str] | None,
    target: str | None,
    draft: str | None,
    device: str,
    dtype: str,
    exact: bool,
    compiled: bool,
    sizes: tuple[tuple[int, ...], ...],
    **given: Any,
) -> Measured:
    from decoder.bench import job, table  # noqa: PLC0415 - imports torch
    from decoder.bench.shapes import loaded_pair, random_pair  # noqa: PLC0415
    from decoder.bench.sizes import Size  # noqa: PLC0415

    pair = partial(random_pair, *shapes) if shapes else partial(loaded_pair, target, draft)
    load = partial(pair, device=device, dtype=dtype, exact=exact, compiled=compiled)
    trees = tuple(Size(*size) for size in sizes)
    done = job.measure_rounds(job.OnRounds(load=load, sizes=trees, **given), streams.say)
    return Measured(table.on_rounds(done.report), done.report, done.interrupted)


def _idle_for_rounds(context: typer.Context, *, with_shapes: bool) -> dict[str, str]:
    """Parameters that would say nothing, each with the reason."""
    about = {str(each.name) for each in context.command.params if getattr(each, "rich_help_panel", "") in ABOUT_TEXTS}
    idle = {*ONLY_TEXTS, *about, *(ONLY_LOADED if with_shapes else ())}
    return dict.fromkeys(idle, "beside --shapes" if with_shapes else "beside --context")


def _idle_for_texts(methods: tuple[str, ...]) -> dict[str, str]:
    """The same where texts are measured."""
    unmeasured = {name: f"where {name} is not measured" for name in OF_A_METHOD if name not in methods}
    return dict.fromkeys(ONLY_ROUNDS, "without --context or --shapes") | unmeasured


def _refuse_idle(context: typer.Context, idle: dict[str, str]) -> None:
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in idle and source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"{parameter.opts[0]} has no effect {idle[parameter.name]}; leave it out")


def _runs(presets: str, given: dict[str, Any]) -> dict[str, RunConfig]:
    """The parameters of each preset that was named."""
    nothing: dict[str, Any] = dict.fromkeys(("methods", "chat", "k", "fixed", "auto"))
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


def _contexts(text: str) -> tuple[int, ...]:
    lengths = tuple(length for (length,) in _lists("--context", text, example="256"))
    require(min(lengths) >= 1, f"--context is {quoted(text)}; give lengths from 1 up")
    return lengths


def _two(shapes: str) -> tuple[str, str]:
    target, colon, draft = shapes.partition(":")
    if not (target and colon and draft):
        raise ConfigError(f"--shapes is {quoted(shapes)}; give target and draft, for example pythia-2.8b:pythia-70m")
    return target, draft


def _lists(option: str, text: str, *, example: str) -> tuple[tuple[int, ...], ...]:
    """Groups of whole numbers with commas between the groups, each of as many numbers as the example has."""
    groups = [part.strip().split("x") for part in text.split(",")]
    with suppress(ValueError):
        found = tuple(dict.fromkeys(tuple(map(int, group)) for group in groups))
        if all(len(group) == len(example.split("x")) for group in found):
            require(max(map(max, found)) <= LARGEST, f"{option} is {quoted(text)}; give no number above {LARGEST}")
            return found
    raise ConfigError(f"{option} is {quoted(text)}; give {example}, or several with commas between them")
