"""The options of `dynatui bench` that no other command has, and what holds where they are not given."""

from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated

from typer import Option

from decoder.methods import METHODS
from dynatui.cli import method_options, options

TEXT_REPEATS, ROUND_REPEATS = 3, 9
ROUNDS = 32
"""So many are measured after each text unless more are asked for: few, so that a text's length stays about the same."""
CONTEXT = "256"

_measure = partial(Option, rich_help_panel="Measurement")

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
Sizes = Annotated[
    str, _measure("--trees", metavar="DxN,..", help="With --context or --shapes: levels and verified rows of trees.")
]
Contexts = Annotated[
    str | None,
    _measure(
        "--context",
        metavar="N,N,..",
        help="Rounds of given sizes after so many random tokens, instead of texts: what they cost, and how that grows. "
        f"With --shapes {CONTEXT} unless given.",
    ),
]
Repeats = Annotated[
    int | None,
    _measure(
        metavar="R",
        min=1,
        max=1000,
        help=f"Times that each prompt is decoded; {TEXT_REPEATS} unless given, {ROUND_REPEATS} for rounds.",
    ),
]
Hostile = Annotated[
    bool,
    _measure(
        "--hostile",
        help="Let the draft guess at random and be sure of it: what methods cost where nothing can be gained.",
    ),
]
Baselines = Annotated[
    bool,
    _measure(
        "--baselines/--no-baselines", help="Whether transformers' greedy and assisted generation are measured as well."
    ),
]
JsonFile = Annotated[
    Path | None,
    _measure("--json", metavar="FILE", help="Add a line to FILE with every sample, all settings and the machine."),
]


def all_methods() -> str:
    """The methods that can be measured: where transformers decodes, that is among the baselines."""
    return ",".join(name for name, method in METHODS.items() if not method.by_module)


def methods() -> Parameter:
    """The option that names the methods to measure."""
    shown = _measure(
        metavar="NAMES", show_default="all", help=f"Which to measure beside ar, of {all_methods().replace(',', ', ')}."
    )
    return options.parameter("methods", str, shown, all_methods())


def sweeps() -> list[Parameter]:
    """The options that list settings of methods to measure."""
    return [
        options.parameter(name, str, _measure(f"--{name}", metavar=each.metavar, help=each.help), each.usual)
        for name, method in METHODS.items()
        if (each := method.sweep)
    ]


def presets() -> Parameter:
    """The option that names presets to measure."""
    names = tuple(preset for method in METHODS.values() for preset in method.presets)
    shown = Option(
        "--preset", metavar="NAMES", rich_help_panel=options.TREE, help=f"One or more of {', '.join(names)}."
    )
    return options.parameter("preset", str, shown, ",".join(names))


def rules() -> list[Parameter]:
    """The options that change every preset that is measured."""
    changing = [option for method in METHODS.values() if method.presets for option in method.options]
    return [method_options.declared(each) for each in method_options.every() if each in changing and not each.default]
