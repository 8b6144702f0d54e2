"""`dynatui bench paper`: the options of the paper's experiments, and the output of results as files and tables."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from decoder.bench.on_pair import OnPair
from decoder.errors import require
from decoder.models.names import require_model
from dynatui.cli import options
from dynatui.cli.bench_files import parts, write_all
from dynatui.cli.bench_result import Measured, run_and_report
from dynatui.cli.number_lists import names
from dynatui.cli.time_left import say_line, shown

if TYPE_CHECKING:
    from decoder.bench.paper.experiments import Extent

FOLDER, QUICK_FOLDER = "bench-paper", "bench-paper-quick"
FROM_FOLDER, FROM_HUB = "wikitext,books", "wikitext,pg19"
"""Names of the data sets used by default: from a folder given by --data, and from the Hugging Face hub."""

_prompt, _compared, _run, _measure = (
    partial(Option, rich_help_panel=panel)
    for panel in (options.PROMPTS, "What is compared", options.RUN, "Measurement")
)

Quick = Annotated[
    bool,
    _compared("--quick", help="Every experiment and figure in a few minutes, on too few texts for conclusions."),
]
Experiments = Annotated[
    str | None,
    _compared(
        metavar="NAMES",
        show_default="all",
        help="Experiments to measure, of main, prompt_length, sensitivity, fixed_trees.",
    ),
]
Lanes = Annotated[
    str | None,
    _compared(
        metavar="NAMES",
        show_default="the paper's rows, and some more",
        help="Rows of main and prompt_length beside ar, for example 'linear K=6,fixed D6 B2'; "
        "an unknown name prints a list of all.",
    ),
]
Data = Annotated[
    Path | None,
    _prompt(
        metavar="DIR",
        envvar="DYNATUI_DATA",
        help="A folder that holds the data sets. Without it they are downloaded from the Hugging Face hub.",
    ),
]
DataSets = Annotated[
    str | None,
    _prompt(
        metavar="NAMES",
        show_default=f"{FROM_FOLDER} with --data, else {FROM_HUB}",
        help="Data sets of main; the other experiments are on wikitext, or on the first.",
    ),
]
Prompts = Annotated[
    int | None, _prompt(metavar="N", min=1, show_default="10", help="Number of prompts from each data set.")
]
PromptChars = Annotated[
    int | None,
    _prompt(
        metavar="N",
        min=1,
        show_default="800; for PG-19 1000",
        help="Maximum prompt length in characters, as in the paper.",
    ),
]
PromptTokens = Annotated[
    int | None, _prompt(metavar="N", min=1, help="Maximum prompt length in tokens, instead of in characters.")
]
MaxNewTokens = Annotated[
    int | None,
    _run(metavar="T", min=1, show_default="1500, or as many as fit", help="Tokens that are decoded after a prompt."),
]
Eos = Annotated[
    bool, _run("--eos/--no-eos", help="Whether texts end at the end-of-text token; in the paper they go on.")
]
Temperature = Annotated[float, _run(metavar="T", help="Sampling temperature; 0: greedy, as in the paper.")]
TopP = Annotated[
    float, _run(metavar="P", help="Sample from the smallest set of tokens with this total probability; 1: all tokens.")
]
WarmUp = Annotated[
    int | None,
    _measure(
        metavar="N",
        min=1,
        show_default="2",
        help="Warm-up prompts, which every lane decodes unmeasured before an experiment.",
    ),
]
Repeats = Annotated[int | None, _measure(metavar="R", min=1, max=1000, help="Times that each prompt is decoded.")]
Output = Annotated[
    Path | None,
    _measure(
        metavar="DIR",
        show_default=f"{FOLDER}, with --quick {QUICK_FOLDER}",
        help="Folder of all results: log.jsonl during the measurement, from which an interrupted "
        "one is resumed, then report.json, tables and figures.",
    ),
]


def paper(
    context: typer.Context,
    *,
    pair: OnPair,
    quick: Quick = False,
    experiments: Experiments = None,
    lanes: Lanes = None,
    data: Data = None,
    data_sets: DataSets = None,
    prompts: Prompts = None,
    prompt_chars: PromptChars = None,
    prompt_tokens: PromptTokens = None,
    max_new_tokens: MaxNewTokens = None,
    eos: Eos = False,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: options.Seed = 0,
    warm_up: WarmUp = None,
    repeats: Repeats = None,
    output: Output = None,
) -> int:
    """Measure what the DynaTree paper claims, on this pair and machine, beside the paper's own figures.

    All lanes decode the same prompts side by side in one process. An interrupted measurement is resumed when the same
    command is run again.
    """
    del context
    require(prompt_chars is None or prompt_tokens is None, "give --prompt-chars or --prompt-tokens, not both")
    folder = output or Path(QUICK_FOLDER if quick else FOLDER)

    def measure() -> Measured:
        from decoder.bench.paper import job  # noqa: PLC0415 - imports torch
        from decoder.bench.paper.experiments import require_names  # noqa: PLC0415
        from decoder.models.drafts import require_whole_draft  # noqa: PLC0415 - imports torch

        require_whole_draft("dynatui bench paper", pair.target, pair.draft)
        made = parts()
        extent = _extent(
            quick=quick,
            experiments=None if experiments is None else names(experiments),
            lanes=None if lanes is None else names(lanes),
            prompts=prompts,
            length=max_new_tokens,
            most=prompt_tokens or prompt_chars,
            unit="tokens" if prompt_tokens else None,
            warm_up=warm_up,
            repeats=repeats,
        )
        # Names are checked before data sets are read or downloaded.
        require_names(extent)
        require_model("dynatui bench paper", pair.target, pair.draft)
        sets = names(data_sets or "") or names(FROM_FOLDER if data else FROM_HUB)
        measurement = job.OnPaper(
            text_sets=made.text_sets(sets, folder=data, prompts=extent.prompts),
            extent=extent,
            must_fit=max_new_tokens is not None,
            stops_at_eos=eos,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            log=folder / "log.jsonl",
            **pair.pair_options,
        )
        done = job.measure_paper(measurement, say_line, shown)
        keep = partial(write_all, done.report, folder, made)
        return Measured(made.on_terminal(done.report), done.report, done.interrupted, keep)

    return run_and_report(measure, None)


def _extent(*, quick: bool, **given: object) -> "Extent":
    """The extent of the measurement, the paper's or the quick one, with the values that options give."""
    from decoder.bench.paper.experiments import QUICK, Extent  # noqa: PLC0415 - imports torch

    changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    return replace(QUICK if quick else Extent(), **changes)  # type: ignore[arg-type]  # each by the name of its field
