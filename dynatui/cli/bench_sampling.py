"""`dynatui bench sampling`: the options for comparing lossless verifiers."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from decoder.bench.on_pair import OnPair
from decoder.verify.names import VERIFIER_NAMES
from dynatui.cli import options, request, settings
from dynatui.cli.bench_result import Measured, run_and_report
from dynatui.cli.number_lists import names, numbers
from dynatui.cli.time_left import say_line, shown

TASKS = "writing,coding,translation,math_reasoning,math"
ALL_VERIFIERS = ",".join(VERIFIER_NAMES)
BESIDE_PROMPTS = ("data", "tasks", "prompts")
"""Parameters without effect when the user gives prompts."""

_prompt, _compared, _measure = (
    partial(Option, rich_help_panel=panel) for panel in (options.PROMPTS, "What is compared", "Measurement")
)

Data = Annotated[
    Path | None,
    _prompt(
        metavar="DIR",
        envvar="DYNATUI_DATA",
        help="A folder with spec_bench/question.jsonl, whose tasks replace the paper's data sets. "
        "Without it, and without prompts: the embedded prompts.",
    ),
]
Tasks = Annotated[str, _prompt(metavar="NAMES", help="Categories of Spec-Bench.")]
Prompts = Annotated[
    int, _prompt(metavar="N", min=1, help="Number of prompts per task, along whose texts trees are drawn.")
]
Temperatures = Annotated[str, _compared(metavar="T,..", help="Temperatures of sampling without truncation.")]
TopPs = Annotated[
    str, _compared(metavar="P,..", help="Further settings: values of top-p at temperature 1; '' for none.")
]
Verifiers = Annotated[
    str, _compared(metavar="NAMES", show_default="all", help=f"Verifiers to compare, of {', '.join(VERIFIER_NAMES)}.")
]
MostRollouts = Annotated[int, _compared("--k", metavar="K", help="Maximum number of rollouts per tree.")]
Length = Annotated[
    int,
    _compared(
        metavar="L",
        help="Maximum of L1, the tokens drawn before a tree branches, and of L2, those of each rollout; both from 0.",
    ),
]
Selector = Annotated[
    str,
    _compared(
        metavar="FILE",
        help="Selector, which chooses the tree shape of each round; shipped: the one that comes with dynatui, if any.",
    ),
]
MaxNewTokens = Annotated[int, _measure(metavar="N", help="Length in tokens of the texts along which trees are drawn.")]
RootsEvery = Annotated[int, _measure(metavar="N", help="Tokens between the roots at which trees are drawn.")]
Decoded = Annotated[
    int,
    _measure(
        metavar="N", help="Prompts of each task that are also decoded, for tokens per second; 0: only closed forms."
    ),
]
Repeats = Annotated[int, _measure(metavar="R", min=1, max=1000, help="Times that each of these prompts is decoded.")]
Output = Annotated[
    Path | None,
    _measure(metavar="FILE", help="Save measurements in FILE as they are made, and resume from it."),
]
JsonFile = Annotated[
    Path | None, _measure("--json", metavar="FILE", help="Append to FILE a line of JSON with the whole report.")
]


def sampling(
    context: typer.Context,
    *,
    pair: OnPair,
    data: Data = None,
    tasks: Tasks = TASKS,
    prompts: Prompts = 4,
    given: request.Prompts,
    temperatures: Temperatures = "0.2,0.4,0.6,0.8,1,1.2",
    top_p: TopPs = "0.9,0.99",
    verifiers: Verifiers = ALL_VERIFIERS,
    k: MostRollouts = 4,
    length: Length = 8,
    selector: Selector = "shipped",
    max_new_tokens: MaxNewTokens = 64,
    roots_every: RootsEvery = 16,
    decoded: Decoded = 1,
    repeats: Repeats = 1,
    seed: options.Seed = 0,
    output: Output = None,
    json_file: JsonFile = None,
) -> int:
    """Compare lossless verifiers on i.i.d. and delayed trees, in the layout of the paper's tables 2 to 15.

    Block efficiency of all shapes comes from closed forms at roots of sampled text; tokens per second come from
    decoding with the best shapes, and coupled trees are measured beside them. The paper: Thomas et al. 2026.
    """
    settings.refuse(context, dict.fromkeys(BESIDE_PROMPTS if given.given else (), "beside prompts"))

    def measure() -> Measured:
        from decoder.bench.sampling import job, table  # noqa: PLC0415 - imports torch
        from decoder.bench.sampling import tasks as tasks_of  # noqa: PLC0415
        from decoder.bench.sampling.request import samplings  # noqa: PLC0415

        measurement = job.OnSamplings(
            tasks=(
                tasks_of.given(given.read())
                if given.given or data is None
                else tasks_of.spec_bench(data, names(tasks), prompts)
            ),
            samplings=samplings(_numbers("--temperatures", temperatures), _numbers("--top-p", top_p)),
            verifiers=names(verifiers),
            k=k,
            length=length,
            max_new_tokens=max_new_tokens,
            roots_every=roots_every,
            decoded=decoded,
            repeats=repeats,
            selector=selector,
            seed=seed,
            log=output,
            **pair.pair_options,
        )
        done = job.measure_samplings(measurement, say_line, shown)
        return Measured(table.on_samplings(done.report), done.report, done.interrupted)

    return run_and_report(measure, json_file)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    return numbers(option, text, names(text), remedy="numbers with commas between them")
