"""`dynatui bench sampling`: the options for comparing lossless verifiers."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from decoder.verify.names import VERIFIER_NAMES
from dynatui.cli import options, request, settings
from dynatui.cli.options import COMPARED, MEASUREMENT, PROMPTS
from dynatui.cli.parameters import CONTEXT, Declared, Given, OptionGroup, in_panel, option
from dynatui.lab.commands.shared import (
    PAIR,
    Measured,
    json_file,
    names,
    numbers,
    repeats,
    run_and_report,
    say_line,
    shown,
)
from dynatui.session import Models

TASKS = "writing,coding,translation,math_reasoning,math"
BESIDE_PROMPTS = ("data", "tasks", "prompts")
"""Parameters that have no effect when the user gives prompts."""


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    return numbers(flag, text, names(text), remedy="numbers with commas between them")


_REQUEST = (
    *in_panel(
        COMPARED,
        option(
            "--temperatures T,..",
            "Temperatures of sampling without truncation.",
            default="0.2,0.4,0.6,0.8,1,1.2",
            parse=partial(_numbers, "--temperatures"),
        ),
        option(
            "--top-p P,..",
            "Values of top-p to measure in addition to the temperatures, each at temperature 1; '' for none.",
            default="0.9,0.99",
            parse=partial(_numbers, "--top-p"),
        ),
        option(
            "--verifiers NAMES",
            f"Verifiers to compare: any of {', '.join(VERIFIER_NAMES)}.",
            default=",".join(VERIFIER_NAMES),
            parse=names,
            show_default="all",
        ),
        option("--k K", "Maximum number of rollouts per tree.", int, default=4),
        option(
            "--length L",
            "Maximum of L1, the number of tokens sampled before a tree branches, and of L2, the number of tokens of "
            "each rollout; both range from 0 to L.",
            int,
            default=8,
        ),
        option(
            "--selector FILE",
            "File of the selector that chooses the tree shape of each round; shipped: the selector that comes with "
            "dynatui, if there is one.",
            default="shipped",
        ),
    ),
    *in_panel(
        MEASUREMENT,
        option("--max-new-tokens N", "Length in tokens of the texts along which trees are sampled.", int, default=64),
        option("--roots-every N", "Distance in tokens between the roots at which trees are sampled.", int, default=16),
        option(
            "--decoded N",
            "Number of prompts per task that are also decoded, to measure tokens per second; 0: only closed forms are "
            "computed.",
            int,
            default=1,
        ),
        repeats("Number of times that each of the --decoded prompts is decoded.", default=1),
    ),
    options.SEED,
)
"""Options whose values set fields of `SamplingRequest`, except `selector`."""
PARAMETERS: Declared = (
    CONTEXT,
    PAIR,
    *in_panel(
        PROMPTS,
        option(
            "--data DIR",
            "A folder that holds spec_bench/question.jsonl; the tasks in this file replace the paper's data sets. "
            "Without --data and without prompts, the embedded prompts are used.",
            Path,
            envvar="DYNATUI_DATA",
        ),
        option("--tasks NAMES", "Categories of Spec-Bench.", default=TASKS, parse=names),
        option(
            "--prompts N",
            "Number of prompts per task; trees are sampled along the texts of these prompts.",
            int,
            default=4,
            least=1,
        ),
    ),
    OptionGroup("given", options.PROMPT_OPTIONS, request.Prompts),
    OptionGroup("asked", _REQUEST),
    *in_panel(
        MEASUREMENT,
        option("--output FILE", "Save measurements in FILE as they are made, and resume from FILE.", Path),
        json_file("the whole report"),
    ),
)


def sampling(
    context: click.Context,
    *,
    pair: Models,
    data: Path | None,
    tasks: tuple[str, ...],
    prompts: int,
    given: request.Prompts,
    asked: Given,
    output: Path | None,
    json_file: Path | None,
) -> int:
    """Compare lossless verifiers on i.i.d. and delayed trees, in the layout of the paper's tables 2 to 15.

    The block efficiency of every tree shape is computed in closed form at roots along sampled texts. Tokens per second
    are measured by decoding with the best shapes and with coupled trees. The paper: Thomas et al. 2026.
    """
    settings.refuse(context, dict.fromkeys(BESIDE_PROMPTS if given.given else (), "beside prompts"))

    def measure() -> Measured:
        from dynatui.lab.bench.sampling import job, records, table  # noqa: PLC0415 - imports torch

        chosen = (
            records.given(given.read()) if given.given or data is None else records.spec_bench(data, tasks, prompts)
        )
        these = records.samplings(asked["temperatures"], asked["top_p"])
        fields: dict[str, Any] = {name: asked[name] for name in asked.keys() - {"temperatures", "top_p", "selector"}}
        wanted = records.SamplingRequest(**fields, samplings=these, tasks=chosen)
        done = job.measure_samplings(pair, wanted, say_line, shown, selector=asked["selector"], path=output)
        return Measured(table.on_samplings(done.report), done)

    return run_and_report(measure, json_file)
