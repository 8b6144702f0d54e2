"""Declares the parameters of `dynatui bench speed`; `dynatui.lab.commands.bench` checks which of them combine."""

from collections.abc import Iterator
from functools import partial

from typer.core import TyperOption

from decoder.errors import ConfigError, quoted, require
from decoder.methods import METHODS
from dynatui.cli import options, request
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import CONTEXT, Declared, OptionGroup, in_panel, option, switch
from dynatui.lab.commands.number_lists import json_file, number_lists, repeats

TEXT_REPEATS, ROUND_REPEATS = 3, 9
CONTEXT_LENGTH = 256


def parameters() -> Declared:
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


def _methods() -> TyperOption:
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


def _sweeps() -> Iterator[TyperOption]:
    for name, method in METHODS.items():
        if sweep := method.sweep:
            yield option(
                f"--{name} {sweep.metavar}",
                sweep.help,
                default=sweep.usual,
                parse=partial(number_lists, f"--{name}", example=sweep.example, probability=sweep.probability),
                panel=MEASUREMENT,
            )


def _presets() -> TyperOption:
    names = tuple(preset for method in METHODS.values() for preset in method.presets)
    return option(
        "--preset NAMES",
        f"One or more presets: {', '.join(names)}, or presets of your own.",
        name="presets",
        default=",".join(names),
        parse=lambda text: tuple(map(str.strip, text.split(","))),
        panel=options.TREE,
    )


def _changes() -> Iterator[TyperOption]:
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
