"""`dynatui bench`: defines its commands, the parameters of `bench speed`, and which of these combine.

The measurements are in `dynatui.lab.bench`. Imports torch only when a measurement begins.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from decoder.errors import ConfigError, quoted, require
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.models.names import require_both, require_model
from decoder.run.config import RunConfig
from dynatui.cli import options, parameters, ranks, request, settings
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import CONTEXT, Declared, Given, Group, Option, OptionGroup, in_panel, option, switch
from dynatui.lab.commands import bench_paper, bench_sampling, bench_sweep
from dynatui.lab.commands.shared import Measured, json_file, number_lists, repeats, run_and_report, say_line, shown
from dynatui.session import Models

TEXT_REPEATS, ROUND_REPEATS = 3, 9
CONTEXT_LENGTH = 256
ONLY_TEXTS = ("methods", "baselines", "llama_cpp", "hostile")
"""Parameters of `bench speed` that have no effect when rounds are measured. The options that list settings of methods,
and the options in the panels `ABOUT_TEXTS`, have no effect either.
"""
ABOUT_TEXTS = (options.PROMPTS, options.TREE)
"""Panels of `--help` whose options have no effect when rounds are measured."""
ONLY_LOADED = ("target", "draft", "inflate", "gpu_layers")
"""Parameters of `bench speed` that have no effect when --shapes gives the models random weights."""
ROUNDS = 32
"""Default of --max-new-tokens when rounds are measured: small, so that the context length stays nearly constant."""
WHOLE_BASELINES = (
    "--baselines measures transformers' own generation, which needs the whole target in one process, but torchrun "
    "spreads the target over several processes; give --no-baselines"
)


def command() -> Group:
    """The command group `dynatui bench`, with options for all registered methods."""
    configured = settings.fallback
    commands = [
        parameters.command("speed", speed, _parameters(), configured),
        parameters.command("sampling", bench_sampling.sampling, bench_sampling.PARAMETERS, configured),
        parameters.command("paper", bench_paper.paper, bench_paper.PARAMETERS, configured),
        parameters.command("sweep", bench_sweep.sweep, bench_sweep.PARAMETERS, configured),
    ]
    return parameters.group("bench", bench, (CONTEXT,), commands)


def bench(context: click.Context) -> None:
    """Measure the speed of decoding."""
    if context.invoked_subcommand != "speed":
        ranks.require_alone(f"dynatui bench {context.invoked_subcommand}")


def speed(
    context: click.Context,
    *,
    names: Given,
    shapes: tuple[str, str] | None,
    arithmetic: Given,
    prompts: request.Prompts,
    methods: tuple[str, ...],
    sweeps: Given,
    trees: tuple[tuple[int, ...], ...],
    contexts: tuple[int, ...] | None,
    max_new_tokens: int | None,
    repeats: int | None,
    seed: int,
    baselines: bool,
    llama_cpp: str | None,
    hostile: bool,
    json_file: Path | None,
    presets: tuple[str, ...],
    rules: Given,
) -> int:
    """Measure every method, and transformers' own generation, side by side on the same prompts.

    The methods take turns, with the same weights, after a warm-up. No speed is reported for a method whose text differs
    from the text of ar.
    """
    on_rounds = shapes is not None or contexts is not None
    if shapes is not None:
        ranks.require_alone("dynatui bench speed --shapes")
    spread = ranks.spreads()
    typed = settings.typed(context)
    measured = () if on_rounds else methods
    if "methods" not in typed and spread:
        measured = tuple(name for name in measured if not METHODS[name].whole_target)
    if on_rounds:
        settings.refuse(context, _idle_for_rounds(context, with_shapes=shapes is not None))
    else:
        unmeasured = {name: f"where {name} is not measured" for name in _sweeping() if name not in measured}
        settings.refuse(context, {"trees": "without --context or --shapes"} | unmeasured)
        require(not (spread and baselines and "baselines" in typed), WHOLE_BASELINES)
    length = ROUNDS if on_rounds and max_new_tokens is None else max_new_tokens
    given = {**rules, "max_new_tokens": length, "seed": seed}
    runs = {name: request.run_config({**given, "preset": name}) for name in presets}
    config = next(iter(runs.values()))
    models = Models(**names, **arithmetic)
    require_both(models.target, models.draft)
    if on_rounds or hostile:
        require_model("--hostile" if hostile else "a measurement of rounds", models.target, models.draft)
    ranks.join(models)
    measure: Callable[[], Measured]
    if on_rounds:
        measure = partial(
            _on_rounds,
            shapes=shapes,
            models=models,
            sizes=trees,
            contexts=contexts or (CONTEXT_LENGTH,),
            config=config,
            repeats=repeats or ROUND_REPEATS,
        )
    else:
        measure = partial(
            _on_texts,
            prompts=prompts.read(),
            config=config,
            methods=measured if "methods" in typed else _with_draft(measured, models.draft),
            settings=_settings(runs, sweeps),
            models=models,
            with_baselines=baselines,
            llama_cpp=llama_cpp,
            random_draft=hostile,
            repeats=repeats or TEXT_REPEATS,
        )
    return run_and_report(measure, json_file)


def _on_texts(**given: Any) -> Measured:
    from dynatui.lab.bench import job, table  # noqa: PLC0415 - imports torch

    done = job.measure_texts(job.OnTexts(**given), say_line, shown)
    return Measured(table.on_texts(done.report), done)


def _on_rounds(
    *,
    shapes: tuple[str, str] | None,
    models: Models,
    sizes: tuple[tuple[int, ...], ...],
    **given: Any,
) -> Measured:
    from dynatui.lab.bench import job, table  # noqa: PLC0415 - imports torch
    from dynatui.lab.bench.rounds import Size  # noqa: PLC0415
    from dynatui.lab.bench.shapes import loaded_pair, random_pair  # noqa: PLC0415

    how = {name: value for name, value in asdict(models).items() if not (shapes and name in ONLY_LOADED)}
    made = partial(random_pair, *shapes, **how) if shapes else partial(loaded_pair, **how)
    trees = tuple(Size(*size) for size in sizes)
    done = job.measure_rounds(job.OnRounds(load=made, sizes=trees, **given), say_line, shown)
    return Measured(table.on_rounds(done.report), done)


def _idle_for_rounds(context: click.Context, *, with_shapes: bool) -> dict[str, str]:
    """Names of the parameters that have no effect on a measurement of rounds, each with the reason."""
    about = {str(each.name) for each in context.command.params if getattr(each, "panel", "") in ABOUT_TEXTS}
    idle = {*ONLY_TEXTS, *_sweeping(), *about, *(ONLY_LOADED if with_shapes else ())}
    return dict.fromkeys(idle, "beside --shapes" if with_shapes else "beside --context")


def _sweeping() -> list[str]:
    """Names of the methods with an option of the same name, which lists the settings to measure."""
    return [name for name, method in METHODS.items() if method.sweep]


def _settings(runs: Mapping[str, RunConfig], sweeps: Given) -> dict[str, dict[str, TunableParameters]]:
    """Parameter sets with which each method is measured: {name of the method: {label of the set: parameters}}."""
    several, config = len(runs) > 1, next(iter(runs.values()))
    sets: dict[str, dict[str, TunableParameters]] = {
        name: {preset if several else "": run.rules(name) for preset, run in runs.items()}
        for name, method in METHODS.items()
        if method.presets
    }
    for name, method in METHODS.items():
        if method.sweep:
            rules, changes = config.rules(name), method.sweep.changes
            sets[name] = {method.sweep.label(*group): replace(rules, **changes(*group)) for group in sweeps[name]}
    return sets


def _with_draft(methods: tuple[str, ...], draft: str | None) -> tuple[str, ...]:
    """The given methods that can decode with this draft."""
    from decoder.models.heads import is_model_free  # noqa: PLC0415 - imports torch

    model_free = bool(draft) and is_model_free(draft)
    return tuple(name for name in methods if not (model_free and METHODS[name].needs_model))


def _parameters() -> Declared:
    return (
        CONTEXT,
        OptionGroup("names", options.MODEL_OPTIONS[:3]),
        _SHAPES,
        OptionGroup("arithmetic", options.MODEL_OPTIONS[3:]),
        request.CUT_PROMPTS,
        _methods(),
        OptionGroup("sweeps", tuple(_sweeps())),
        *_MEASURED,
        _presets(),
        OptionGroup("rules", (*options.SAMPLING_OPTIONS, *_changes())),
    )


def all_methods() -> str:
    """Comma-separated names that --methods accepts; methods of transformers are measured by --baselines instead."""
    return ",".join(name for name, method in METHODS.items() if not method.by_module)


def _methods() -> Option:
    return option(
        "--methods NAMES",
        f"Methods to measure in addition to ar: any of {all_methods().replace(',', ', ')}.",
        default=all_methods(),
        parse=_named,
        show_default="all",
        panel=MEASUREMENT,
    )


def _named(text: str) -> tuple[str, ...]:
    methods = tuple(dict.fromkeys(options.method_names(text)))
    for name in methods:
        fault = f"{name} is measured by --baselines, under the name assisted; leave {name} out of --methods"
        require(not METHODS[name].by_module, fault)
    return methods


def _sweeps() -> Iterator[Option]:
    for name, method in METHODS.items():
        if sweep := method.sweep:
            yield option(
                f"--{name} {sweep.metavar}",
                sweep.help,
                default=sweep.usual,
                parse=partial(number_lists, f"--{name}", example=sweep.example, probability=sweep.probability),
                panel=MEASUREMENT,
            )


def _presets() -> Option:
    names = tuple(preset for method in METHODS.values() for preset in method.presets)
    return option(
        "--preset NAMES",
        f"One or more presets: {', '.join(names)}, or presets of your own.",
        name="presets",
        default=",".join(names),
        parse=lambda text: tuple(map(str.strip, text.split(","))),
        panel=options.TREE,
    )


def _changes() -> Iterator[Option]:
    """Options of single parameters; a given value replaces the parameter's value in every measured preset."""
    changing = [each for method in METHODS.values() if method.presets for each in method.options]
    for each in options.of_methods():
        if each in changing and not each.selects_preset:
            yield options.declared(each, options.TREE)


def _contexts(text: str) -> tuple[int, ...]:
    lengths = tuple(length for (length,) in number_lists("--context", text, example="256"))
    require(min(lengths) >= 1, f"--context is {quoted(text)}; give lengths from 1 up")
    return lengths


def _two(shapes: str) -> tuple[str, str]:
    target, colon, draft = shapes.partition(":")
    if not (target and colon and draft):
        raise ConfigError(f"--shapes is {quoted(shapes)}; give target and draft, for example pythia-2.8b:pythia-70m")
    return target, draft


_SHAPES = option(
    "--shapes TARGET:DRAFT",
    "Use random weights instead of models. TARGET and DRAFT are names of shapes, for example pythia-2.8b:pythia-70m, "
    "or config.json files.",
    parse=_two,
    panel=options.MODELS,
)
_MEASURED = (
    *in_panel(
        MEASUREMENT,
        option(
            "--trees DxN,..",
            "With --context or --shapes: sizes of trees, as levels x verified rows.",
            default="1x2,2x4,4x8,4x16,8x32,8x64",
            parse=partial(number_lists, "--trees", example="8x64"),
        ),
        option(
            "--context N,N,..",
            "Measure rounds instead of texts: for each size in --trees, the cost of a round after N random tokens, and "
            f"how this cost grows with N. Default with --shapes: {CONTEXT_LENGTH}.",
            name="contexts",
            parse=_contexts,
        ),
    ),
    options.MAX_NEW_TOKENS,
    repeats(
        f"Number of times that each prompt is decoded. Default: {TEXT_REPEATS} for texts, {ROUND_REPEATS} for rounds."
    ),
    options.SEED,
    *in_panel(
        MEASUREMENT,
        switch(
            "--baselines/--no-baselines",
            "Whether transformers' greedy generation, assisted generation and prompt lookup are also measured. Under "
            "torchrun, they are not.",
            default=True,
        ),
        option(
            "--llama-cpp FILE",
            "A GGUF file of the target's weights: llama.cpp's own plain greedy decoding of this file is also measured, "
            "beside a target in torch and also with --no-baselines.",
        ),
        switch(
            "--hostile",
            "Let the draft guess at random, with full confidence, to measure the cost of methods when no draft is "
            "accepted.",
        ),
        json_file("every sample, all settings and the machine"),
    ),
)
