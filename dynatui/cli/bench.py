"""`dynatui bench`: defines its commands, and checks how the options of `bench speed` combine.

The measurements are in `decoder.bench`. Imports torch only when a measurement begins.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from inspect import Parameter
from typing import Any

import typer
from typer import Option

from decoder.errors import ConfigError, quoted, require
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.models.names import require_both, require_model
from decoder.run.config import RunConfig
from dynatui.cli import bench_options as own
from dynatui.cli import bench_paper, bench_sampling, bench_sweep, options, ranks, request, settings
from dynatui.cli.bench_result import Measured, run_and_report
from dynatui.cli.number_lists import number_lists
from dynatui.cli.options import Declared, Given, Group
from dynatui.cli.time_left import say_line, shown
from dynatui.session import Models

ONLY_TEXTS = ("methods", "baselines", "hostile")
"""Parameters of `bench speed` without effect when rounds are measured; sweeps and `ABOUT_TEXTS` have none either."""
ABOUT_TEXTS = (options.PROMPTS, options.TREE)
"""Panels of `--help` whose options have no effect when rounds are measured."""
ONLY_ROUNDS = ("trees",)
"""Parameters of `bench speed` without effect when texts are measured."""
ONLY_LOADED = ("target", "draft", "tensor_parallel")
"""Parameters of `bench speed` without effect when models have random weights."""
SUMMING_UP_S = 60.0
"""Time limit, in seconds, for summarizing a measurement that a signal has interrupted."""
ROUNDS = 32
"""Default number of tokens measured after each text: small, so that the context length stays nearly constant."""
WHOLE_BASELINES = (
    "--baselines are transformers' own generation, which needs the whole target in one process, and --tensor-parallel "
    "spreads it over several; give --no-baselines"
)


def commands() -> typer.Typer:
    """The command group `dynatui bench`, with options for all registered methods."""
    app = typer.Typer()
    given: Declared = {
        "names": Group(options.MODEL_OPTIONS[:2]),
        "arithmetic": Group(options.MODEL_OPTIONS[2:]),
        "prompts": request.CUT_PROMPTS,
        "methods": _method_option(),
        "sweeps": Group(_sweep_options()),
        "preset": _preset_option(),
        "rules": Group(_rule_options()),
    }
    app.callback()(bench)
    app.command()(settings.configured(speed, given))
    app.command()(settings.configured(bench_sampling.sampling, {"pair": request.PAIR, "given": request.PROMPTS}))
    app.command()(settings.configured(bench_paper.paper, {"pair": request.PAIR}))
    app.command()(settings.configured(bench_sweep.sweep, {"pair": request.PAIR, "prompts": request.CUT_PROMPTS}))
    return app


def bench(context: typer.Context) -> None:
    """Measure the speed of decoding."""
    if context.invoked_subcommand != "speed":
        ranks.require_alone(f"dynatui bench {context.invoked_subcommand}")


def speed(
    context: typer.Context,
    *,
    names: Given,
    shapes: own.Shapes = None,
    arithmetic: Given,
    tensor_parallel: options.TensorParallel = 1,
    prompts: request.Prompts,
    methods: str,
    sweeps: Given,
    trees: own.Sizes = "1x2,2x4,4x8,4x16,8x32,8x64",
    context_length: own.Contexts = None,
    max_new_tokens: options.MaxNewTokens = None,
    repeats: own.Repeats = None,
    seed: options.Seed = 0,
    baselines: own.Baselines = True,
    hostile: own.Hostile = False,
    json_file: own.JsonFile = None,
    preset: str,
    rules: Given,
) -> int:
    """Measure every method, and transformers' own generation, side by side on the same prompts.

    All decode with the same weights, turn by turn after a warm-up. A method whose text differs from ar's gets no speed.
    """
    on_rounds = shapes is not None or context_length is not None
    parts = tensor_parallel if shapes is None else 1
    typed = settings.typed(context)
    measured = () if on_rounds else _named(methods)
    if "methods" not in typed and parts > 1:
        measured = tuple(name for name in measured if not METHODS[name].whole_target)
    if on_rounds:
        settings.refuse(context, _idle_for_rounds(context, with_shapes=shapes is not None))
    else:
        settings.refuse(context, _idle_for_texts(measured))
        require(parts == 1 or not (baselines and "baselines" in typed), WHOLE_BASELINES)
    length = ROUNDS if on_rounds and max_new_tokens is None else max_new_tokens
    runs = _runs(preset, rules, max_new_tokens=length, seed=seed)
    config = next(iter(runs.values()))
    models = Models(**names, **arithmetic)
    require_both(models.target, models.draft)
    if on_rounds or hostile:
        require_model("--hostile" if hostile else "a measurement of rounds", models.target, models.draft)
    code = ranks.spread(parts, models, context.obj, further_s=SUMMING_UP_S)
    if code is not None:
        return code
    measure: Callable[[], Measured]
    if on_rounds:
        measure = partial(
            _on_rounds,
            shapes=None if shapes is None else _two(shapes),
            models=models,
            tensor_parallel=parts,
            sizes=number_lists("--trees", trees, example="8x64"),
            contexts=_contexts(own.CONTEXT if context_length is None else context_length),
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
            tensor_parallel=parts,
            with_baselines=baselines,
            random_draft=hostile,
            repeats=repeats or own.TEXT_REPEATS,
        )
    return run_and_report(measure, json_file)


def all_methods() -> str:
    """Names of all methods that --methods accepts; decoding by transformers is measured as a baseline instead."""
    return ",".join(name for name, method in METHODS.items() if not method.by_module)


def _method_option() -> Parameter:
    shown = own.measured(
        metavar="NAMES",
        show_default="all",
        help=f"Methods to measure beside ar, of {all_methods().replace(',', ', ')}.",
    )
    return options.parameter("methods", str, shown, all_methods())


def _sweep_options() -> list[Parameter]:
    return [
        options.parameter(name, str, own.measured(f"--{name}", metavar=each.metavar, help=each.help), each.usual)
        for name, method in METHODS.items()
        if (each := method.sweep)
    ]


def _preset_option() -> Parameter:
    names = tuple(preset for method in METHODS.values() for preset in method.presets)
    shown = Option(
        "--preset",
        metavar="NAMES",
        rich_help_panel=options.TREE,
        help=f"One or more of the presets {', '.join(names)}, or of your own.",
    )
    return options.parameter("preset", str, shown, ",".join(names))


def _rule_options() -> list[Parameter]:
    """The options of sampling, and those of methods that change a parameter in every measured preset."""
    changing = [option for method in METHODS.values() if method.presets for option in method.options]
    changes = (
        options.declared(each, options.TREE) for each in options.of_methods() if each in changing and not each.default
    )
    return [*options.SAMPLING_OPTIONS, *changes]


def _on_texts(**given: Any) -> Measured:
    from decoder.bench import job, table  # noqa: PLC0415 - imports torch

    done = job.measure_texts(job.OnTexts(**given), say_line, shown)
    return Measured(table.on_texts(done.report), done.report, done.interrupted)


def _on_rounds(
    *,
    shapes: tuple[str, str] | None,
    models: Models,
    tensor_parallel: int,
    sizes: tuple[tuple[int, ...], ...],
    **given: Any,
) -> Measured:
    from decoder.bench import job, table  # noqa: PLC0415 - imports torch
    from decoder.bench.shapes import loaded_pair, random_pair  # noqa: PLC0415
    from decoder.bench.sizes import Size  # noqa: PLC0415

    pair = partial(loaded_pair, models.target, models.draft, tensor_parallel=tensor_parallel)
    made = partial(random_pair, *shapes) if shapes else pair
    how = {name: value for name, value in asdict(models).items() if name not in ONLY_LOADED}
    trees = tuple(Size(*size) for size in sizes)
    done = job.measure_rounds(job.OnRounds(load=partial(made, **how), sizes=trees, **given), say_line, shown)
    return Measured(table.on_rounds(done.report), done.report, done.interrupted)


def _idle_for_rounds(context: typer.Context, *, with_shapes: bool) -> dict[str, str]:
    """Parameters without effect on a measurement of rounds, each with the reason."""
    about = {str(each.name) for each in context.command.params if getattr(each, "rich_help_panel", "") in ABOUT_TEXTS}
    idle = {*ONLY_TEXTS, *_sweeping(), *about, *(ONLY_LOADED if with_shapes else ())}
    return dict.fromkeys(idle, "beside --shapes" if with_shapes else "beside --context")


def _idle_for_texts(measured: Collection[str]) -> dict[str, str]:
    """Parameters without effect on a measurement of texts by these methods, each with the reason."""
    unmeasured = {name: f"where {name} is not measured" for name in _sweeping() if name not in measured}
    return dict.fromkeys(ONLY_ROUNDS, "without --context or --shapes") | unmeasured


def _sweeping() -> list[str]:
    """Names of the methods that have an option of the same name, which lists the settings to measure."""
    return [name for name, method in METHODS.items() if method.sweep]


def _runs(presets: str, rules: Given, **given: Any) -> dict[str, RunConfig]:
    """The run configuration for each preset in a list of names."""
    return {name: request.run_config({**rules, **given, "preset": name}) for name in map(str.strip, presets.split(","))}


def _settings(runs: Mapping[str, RunConfig], sweeps: Given) -> dict[str, dict[str, TunableParameters]]:
    """The parameter sets that each method is measured with, by label."""
    several, config = len(runs) > 1, next(iter(runs.values()))
    sets: dict[str, dict[str, TunableParameters]] = {
        name: {preset if several else "": run.rules(name) for preset, run in runs.items()}
        for name, method in METHODS.items()
        if method.presets
    }
    for name, method in METHODS.items():
        if method.sweep:
            groups = number_lists(f"--{name}", sweeps[name], example=method.sweep.example)
            rules, changes = config.rules(name), method.sweep.changes
            sets[name] = {method.sweep.label(*group): replace(rules, **changes(*group)) for group in groups}
    return sets


def _named(names: str) -> tuple[str, ...]:
    """The methods named in a list, without duplicates; raises ConfigError for one that cannot be measured."""
    methods = tuple(dict.fromkeys(request.method_names(names)))
    for name in methods:
        require(not METHODS[name].by_module, f"{name} is measured as the baseline assisted; leave it out of --methods")
    return methods


def _with_draft(methods: tuple[str, ...], draft: str | None) -> tuple[str, ...]:
    """Those of the methods that can decode with this draft."""
    from decoder.models.drafts import is_model_free  # noqa: PLC0415 - imports torch

    model_free = bool(draft) and is_model_free(draft)
    return tuple(name for name in methods if not (model_free and METHODS[name].needs_model))


def _contexts(text: str) -> tuple[int, ...]:
    lengths = tuple(length for (length,) in number_lists("--context", text, example="256"))
    require(min(lengths) >= 1, f"--context is {quoted(text)}; give lengths from 1 up")
    return lengths


def _two(shapes: str) -> tuple[str, str]:
    target, colon, draft = shapes.partition(":")
    if not (target and colon and draft):
        raise ConfigError(f"--shapes is {quoted(shapes)}; give target and draft, for example pythia-2.8b:pythia-70m")
    return target, draft
