"""`dynatui bench paper`: the options of the paper's experiments, and the output of their results."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from decoder.errors import require
from decoder.models.names import require_model
from dynatui.cli import options
from dynatui.cli.options import COMPARED, MEASUREMENT, PROMPTS, RUN
from dynatui.cli.parameters import Declared, in_panel, option, switch
from dynatui.lab.bench.on_pair import OnPair
from dynatui.lab.commands.bench_files import parts, write_all
from dynatui.lab.commands.bench_result import Measured, run_and_report, say_line, shown
from dynatui.lab.commands.number_lists import PAIR, names

if TYPE_CHECKING:
    from dynatui.lab.bench.paper.experiments import Extent

FOLDER, QUICK_FOLDER = "bench-paper", "bench-paper-quick"
FROM_FOLDER, FROM_HUB = ("wikitext", "books"), ("wikitext", "pg19")
"""Default data sets if --data gives a folder, and default data sets that are downloaded from the Hugging Face hub."""

PARAMETERS: Declared = (
    PAIR,
    *in_panel(
        COMPARED,
        switch(
            "--quick",
            "Measure every experiment and draw every figure in a few minutes, on too few texts for conclusions.",
        ),
        option(
            "--experiments NAMES",
            "Experiments to measure: any of main, prompt_length, sensitivity, fixed_trees.",
            parse=names,
            show_default="all",
        ),
        option(
            "--lanes NAMES",
            "Settings to measure in addition to ar in the experiments main and prompt_length, for example 'linear "
            "K=6,fixed D6 B2'; an unknown name prints a list of all names.",
            parse=names,
            show_default="the paper's rows, and further settings",
        ),
    ),
    *in_panel(
        PROMPTS,
        option(
            "--data DIR",
            "A folder that holds the data sets. Without it, the data sets are downloaded from the Hugging Face hub.",
            Path,
            envvar="DYNATUI_DATA",
        ),
        option(
            "--data-sets NAMES",
            "Data sets of the experiment main; the other experiments use only wikitext, or the first data set if "
            "wikitext is not named.",
            parse=names,
            show_default=f"{','.join(FROM_FOLDER)} with --data, else {','.join(FROM_HUB)}",
        ),
        option("--prompts N", "Number of prompts from each data set.", int, least=1, show_default="10"),
        option(
            "--prompt-chars N",
            "Maximum prompt length in characters, as in the paper.",
            int,
            least=1,
            show_default="800; for PG-19, 1000",
        ),
        option("--prompt-tokens N", "Maximum prompt length in tokens, instead of in characters.", int, least=1),
    ),
    *in_panel(
        RUN,
        option(
            "--max-new-tokens T",
            "Number of tokens to decode after each prompt.",
            int,
            least=1,
            show_default="1500, or as many as fit",
        ),
        switch("--eos/--no-eos", "Whether decoding stops at the end-of-text token; in the paper, it does not."),
        option("--temperature T", "Sampling temperature; 0: greedy, as in the paper.", float, default=0.0),
        option(
            "--top-p P",
            "Sample from the smallest set of tokens with this total probability; 1: all tokens.",
            float,
            default=1.0,
        ),
    ),
    options.SEED,
    *in_panel(
        MEASUREMENT,
        option(
            "--warm-up N",
            "Number of warm-up prompts. Every lane decodes them before an experiment; they are not measured.",
            int,
            least=1,
            show_default="2",
        ),
        option("--repeats R", "Number of times that each prompt is decoded.", int, least=1, most=1000),
        option(
            "--output DIR",
            "Folder for all results: log.jsonl, from which an interrupted measurement is resumed, and report.json, "
            "tables and figures, which are written at the end.",
            Path,
            show_default=f"{FOLDER}, with --quick {QUICK_FOLDER}",
        ),
    ),
)


def paper(
    *,
    pair: OnPair,
    quick: bool,
    experiments: tuple[str, ...] | None,
    lanes: tuple[str, ...] | None,
    data: Path | None,
    data_sets: tuple[str, ...] | None,
    prompts: int | None,
    prompt_chars: int | None,
    prompt_tokens: int | None,
    max_new_tokens: int | None,
    eos: bool,
    temperature: float,
    top_p: float,
    seed: int,
    warm_up: int | None,
    repeats: int | None,
    output: Path | None,
) -> int:
    """Measure the claims of the DynaTree paper on this pair and machine, and show them beside the paper's own figures.

    All lanes decode the same prompts side by side in one process. An interrupted measurement is resumed when the same
    command is run again.
    """
    require(prompt_chars is None or prompt_tokens is None, "give --prompt-chars or --prompt-tokens, not both")
    folder = output or Path(QUICK_FOLDER if quick else FOLDER)

    def measure() -> Measured:
        from decoder.models.heads import require_whole_draft  # noqa: PLC0415 - imports torch
        from dynatui.lab.bench.paper import job  # noqa: PLC0415 - imports torch
        from dynatui.lab.bench.paper.experiments import require_names  # noqa: PLC0415

        require_whole_draft("dynatui bench paper", pair.target, pair.draft)
        made = parts()
        extent = _extent(
            quick=quick,
            experiments=experiments,
            lanes=lanes,
            prompts=prompts,
            length=max_new_tokens,
            most=prompt_tokens or prompt_chars,
            unit="tokens" if prompt_tokens else None,
            warm_up=warm_up,
            repeats=repeats,
        )
        # Unknown names must be reported before the slow reading or downloading of data sets.
        require_names(extent)
        require_model("dynatui bench paper", pair.target, pair.draft)
        sets = data_sets or (FROM_FOLDER if data else FROM_HUB)
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
    from dynatui.lab.bench.paper.experiments import QUICK, Extent  # noqa: PLC0415 - imports torch

    changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    return replace(QUICK if quick else Extent(), **changes)  # type: ignore[arg-type]  # the keys are field names
