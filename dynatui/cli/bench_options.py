"""Declares the options that only `dynatui bench speed` has; `dynatui.cli.bench` decides how they combine."""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from dynatui.cli import options

TEXT_REPEATS, ROUND_REPEATS = 3, 9
CONTEXT = "256"

measured = partial(Option, rich_help_panel="Measurement")

Shapes = Annotated[
    str | None,
    Option(
        metavar="TARGET:DRAFT",
        rich_help_panel=options.MODELS,
        help="Instead of models, random weights of these shapes: names such as pythia-2.8b:pythia-70m, "
        "or two config.json.",
    ),
]
Sizes = Annotated[
    str,
    measured(
        "--trees", metavar="DxN,..", help="With --context or --shapes: sizes of trees, as levels x verified rows."
    ),
]
Contexts = Annotated[
    str | None,
    measured(
        "--context",
        metavar="N,N,..",
        help="Measure rounds of given sizes instead of texts, after contexts of N random tokens: "
        f"their cost, and how it grows. Default with --shapes: {CONTEXT}.",
    ),
]
Repeats = Annotated[
    int | None,
    measured(
        metavar="R",
        min=1,
        max=1000,
        help=f"Times that each prompt is decoded; {TEXT_REPEATS} unless given, {ROUND_REPEATS} for rounds.",
    ),
]
Hostile = Annotated[
    bool,
    measured(
        "--hostile",
        help="Let the draft guess at random, with full confidence: what methods cost when no draft is accepted.",
    ),
]
Baselines = Annotated[
    bool,
    measured(
        "--baselines/--no-baselines",
        help="Whether transformers' greedy and assisted generation and its prompt lookup are measured; left out "
        "beside --tensor-parallel.",
    ),
]
JsonFile = Annotated[
    Path | None,
    measured(
        "--json", metavar="FILE", help="Append to FILE a line of JSON with every sample, all settings and the machine."
    ),
]
