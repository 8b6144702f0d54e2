"""`dynatui bench paper`: the options of the paper's experiments, and their main results as text for a terminal."""

from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markdown import Markdown

from decoder.errors import require
from decoder.models.names import require_model
from dynatui.clean import clean
from dynatui.cli import options
from dynatui.cli.options import COMPARED, MEASUREMENT, PROMPTS, RUN
from dynatui.cli.parameters import Declared, Given, OptionGroup, in_panel, option, switch
from dynatui.lab.commands.shared import PAIR, Measured, names, run_and_report, say_line, shown
from dynatui.lab.tables import escaped, lines, section
from dynatui.session import Models

if TYPE_CHECKING:
    from dynatui.lab.bench.paper.claims import JudgedClaim
    from dynatui.lab.bench.paper.report import PaperReport

FOLDER, QUICK_FOLDER = "bench-paper", "bench-paper-quick"
FROM_FOLDER, FROM_HUB = ("wikitext", "books"), ("wikitext", "pg19")
"""Default data sets if --data gives a folder, and default data sets that are downloaded from the Hugging Face hub."""

_OPTIONS = (
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
            name="length",
            least=1,
            show_default="1500, or as many as fit",
        ),
        switch(
            "--eos/--no-eos",
            "Whether decoding stops at the end-of-text token; in the paper, it does not.",
            name="stops_at_eos",
        ),
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
PARAMETERS: Declared = (PAIR, OptionGroup("given", _OPTIONS))
_OF_THE_JOB = ("stops_at_eos", "temperature", "top_p", "seed")
_OF_THE_FILES = ("quick", "data", "data_sets", "output", "prompt_chars", "prompt_tokens")
"""Options that `paper` itself evaluates. All options except these and `_OF_THE_JOB` set fields of `Extent`."""


def paper(*, pair: Models, given: Given) -> int:
    """Measure the claims of the DynaTree paper on this pair and machine, and show them beside the paper's own figures.

    All lanes decode the same prompts side by side in one process. An interrupted measurement is resumed when the same
    command is run again.
    """
    quick, data, data_sets, output, characters, tokens = (given[name] for name in _OF_THE_FILES)
    require(characters is None or tokens is None, "give --prompt-chars or --prompt-tokens, not both")
    folder = output or Path(QUICK_FOLDER if quick else FOLDER)
    sizes: dict[str, Any] = {name: given[name] for name in given.keys() - {*_OF_THE_JOB, *_OF_THE_FILES}}
    sizes |= {"most": tokens or characters, "unit": "tokens" if tokens else None}

    def measure() -> Measured:
        from decoder.models.heads import require_whole_draft  # noqa: PLC0415 - imports torch
        from dynatui.lab.bench.data_sets import text_sets  # noqa: PLC0415
        from dynatui.lab.bench.paper import job, write  # noqa: PLC0415
        from dynatui.lab.bench.paper.experiments import QUICK, Extent, require_names  # noqa: PLC0415

        require_whole_draft("dynatui bench paper", pair.target, pair.draft)
        changes = {name: value for name, value in sizes.items() if value is not None}
        extent = replace(QUICK if quick else Extent(), **changes)
        # Unknown names must be reported before the slow reading or downloading of data sets.
        require_names(extent)
        require_model("dynatui bench paper", pair.target, pair.draft)
        sets = data_sets or (FROM_FOLDER if data else FROM_HUB)
        measurement = job.OnPaper(
            models=pair,
            text_sets=text_sets(sets, folder=data, prompts=extent.prompts),
            extent=extent,
            must_fit=sizes["length"] is not None,
            **{name: given[name] for name in _OF_THE_JOB},
            log=folder / "log.jsonl",
        )
        done = job.measure_paper(measurement, say_line, shown)
        table = text(done.report, get_terminal_size().columns)
        return Measured(table, done, partial(write.write_all, done.report, folder))

    return run_and_report(measure, None)


NARROWEST = 80


def text(report: "PaperReport", width: int) -> str:
    """Main results and claims, in lines of at most `width` characters, or `NARROWEST` if `width` is smaller."""
    from dynatui.lab.bench.paper import claims, tables  # noqa: PLC0415 - imports torch

    mains = [table for table in tables.tables(report) if table.name.startswith("main_")]
    parts = [part for table in mains for part in section(table)]
    judged = claims.claims(report)
    for data_set in dict.fromkeys(claim.data_set for claim in judged):
        items = [_judged(claim) for claim in judged if claim.data_set == data_set]
        parts += [f"## The paper's claims: {escaped(data_set)}", *items]
    parts += filter(None, [claims.left_out(report)])
    parts += map(escaped, () if mains else tables.conditions(report))
    out = StringIO()
    console = Console(file=out, width=max(width, NARROWEST), color_system=None)
    console.print(Markdown(clean("\n\n".join([*parts, "All tables are in report.md."]))))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _judged(claim: "JudgedClaim") -> str:
    """Item of a list: the verdict on a claim, the paper's claim, the measured value, and the test."""
    doubt = f" ({claim.doubt})" if claim.doubt else ""
    paper = "" if claim.paper is None else f"; paper {claim.paper:.3f}{doubt}"
    must = f", must be {'under' if claim.below else 'over'} {claim.limit:g}" if claim.by_quotient else ""
    mean, *interval = lines(claim.here, 3)
    here = f"{mean} ({interval[0]})" if interval else mean
    said = (f"{claim.verdict}: {claim.says} ({claim.source})", f"here {here}{must}{paper}", claim.tested)
    return "- " + "\\\n  ".join(map(escaped, said))
