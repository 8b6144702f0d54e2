"""`dynatui bench`: defines its commands, and checks how the options of `bench speed` combine.

The measurements are in `dynatui.lab.bench`. Imports torch only when a measurement begins.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from decoder.errors import require
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.models.names import require_both, require_model
from decoder.run.config import RunConfig
from dynatui.cli import options, parameters, ranks, request, settings
from dynatui.cli.parameters import CONTEXT, Given
from dynatui.lab.commands import bench_options as own
from dynatui.lab.commands import bench_paper, bench_sampling, bench_sweep
from dynatui.lab.commands.bench_result import Measured, run_and_report, say_line, shown
from dynatui.session import Models

ONLY_TEXTS = ("methods", "baselines", "llama_cpp", "hostile")
"""Parameters of `bench speed` that have no effect when rounds are measured. The options that list settings of methods,
and the options in the panels `ABOUT_TEXTS`, have no effect either.
"""
ABOUT_TEXTS = (options.PROMPTS, options.TREE)
"""Panels of `--help` whose options have no effect when rounds are measured."""
ONLY_ROUNDS = ("trees",)
"""Parameters of `bench speed` that have no effect when texts are measured."""
ONLY_LOADED = ("target", "draft", "inflate")
"""Parameters of `bench speed` that have no effect when --shapes gives the models random weights."""
ROUNDS = 32
"""Default of --max-new-tokens when rounds are measured: small, so that the context length stays nearly constant."""
WHOLE_BASELINES = (
    "--baselines measures transformers' own generation, which needs the whole target in one process, but torchrun "
    "spreads the target over several processes; give --no-baselines"
)


def command() -> TyperGroup:
    """The command group `dynatui bench`, with options for all registered methods."""
    configured = settings.fallback
    commands = [
        parameters.command("speed", speed, own.parameters(), configured),
        parameters.command("sampling", bench_sampling.sampling, bench_sampling.PARAMETERS, configured),
        parameters.command("paper", bench_paper.paper, bench_paper.PARAMETERS, configured),
        parameters.command("sweep", bench_sweep.sweep, bench_sweep.PARAMETERS, configured),
    ]
    return parameters.group("bench", bench, (CONTEXT,), commands)


def bench(context: typer.Context) -> None:
    """Measure the speed of decoding."""
    if context.invoked_subcommand != "speed":
        ranks.require_alone(f"dynatui bench {context.invoked_subcommand}")


def speed(
    context: typer.Context,
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
        settings.refuse(context, _idle_for_texts(measured))
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
            contexts=contexts or (own.CONTEXT_LENGTH,),
            config=config,
            repeats=repeats or own.ROUND_REPEATS,
        )
    else:
        measure = partial(
            _on_texts,
            prompts=prompts.read(),
            config=config,
            methods=measured if "methods" in typed else _with_draft(measured, models.draft),
            settings=_settings(runs, sweeps),
            **asdict(models),
            with_baselines=baselines,
            llama_cpp=llama_cpp,
            random_draft=hostile,
            repeats=repeats or own.TEXT_REPEATS,
        )
    return run_and_report(measure, json_file)


def _on_texts(**given: Any) -> Measured:
    from dynatui.lab.bench import job, table  # noqa: PLC0415 - imports torch

    done = job.measure_texts(job.OnTexts(**given), say_line, shown)
    return Measured(table.on_texts(done.report), done.report, done.interrupted)


def _on_rounds(
    *,
    shapes: tuple[str, str] | None,
    models: Models,
    sizes: tuple[tuple[int, ...], ...],
    **given: Any,
) -> Measured:
    from dynatui.lab.bench import job, table  # noqa: PLC0415 - imports torch
    from dynatui.lab.bench.shapes import (  # noqa: PLC0415
        Size,
        loaded_pair,
        random_pair,
    )

    pair = partial(loaded_pair, models.target, models.draft, inflate=models.inflate)
    made = partial(random_pair, *shapes) if shapes else pair
    how = {name: value for name, value in asdict(models).items() if name not in ONLY_LOADED}
    trees = tuple(Size(*size) for size in sizes)
    done = job.measure_rounds(job.OnRounds(load=partial(made, **how), sizes=trees, **given), say_line, shown)
    return Measured(table.on_rounds(done.report), done.report, done.interrupted)


def _idle_for_rounds(context: typer.Context, *, with_shapes: bool) -> dict[str, str]:
    """Names of the parameters that have no effect on a measurement of rounds, each with the reason."""
    about = {str(each.name) for each in context.command.params if getattr(each, "rich_help_panel", "") in ABOUT_TEXTS}
    idle = {*ONLY_TEXTS, *_sweeping(), *about, *(ONLY_LOADED if with_shapes else ())}
    return dict.fromkeys(idle, "beside --shapes" if with_shapes else "beside --context")


def _idle_for_texts(measured: Collection[str]) -> dict[str, str]:
    """Names of the parameters without effect on a measurement of texts by the methods `measured`, with reasons."""
    unmeasured = {name: f"where {name} is not measured" for name in _sweeping() if name not in measured}
    return dict.fromkeys(ONLY_ROUNDS, "without --context or --shapes") | unmeasured


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
