"""`dynatui bench paper`: the options of the paper's experiments, and the output of their results: files, each written
completely or not at all, and the report as text for a terminal.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from decoder.errors import require
from decoder.models.names import require_model
from decoder.system.whole_files import write_whole
from dynatui.clean import clean_line
from dynatui.cli import options
from dynatui.cli.options import COMPARED, MEASUREMENT, PROMPTS, RUN
from dynatui.cli.parameters import Declared, Given, OptionGroup, in_panel, option, switch
from dynatui.lab.bench.on_pair import OnPair
from dynatui.lab.commands.shared import PAIR, Measured, names, run_and_report, say_line, shown
from dynatui.lab.tables.data import Table, lines
from dynatui.terminal import streams

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


def paper(*, pair: OnPair, given: Given) -> int:
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
        from dynatui.lab.bench.data_sets.prompts import text_sets  # noqa: PLC0415
        from dynatui.lab.bench.paper import job  # noqa: PLC0415
        from dynatui.lab.bench.paper.experiments import QUICK, Extent, require_names  # noqa: PLC0415

        require_whole_draft("dynatui bench paper", pair.target, pair.draft)
        writing = writers()
        changes = {name: value for name, value in sizes.items() if value is not None}
        extent = replace(QUICK if quick else Extent(), **changes)
        # Unknown names must be reported before the slow reading or downloading of data sets.
        require_names(extent)
        require_model("dynatui bench paper", pair.target, pair.draft)
        sets = data_sets or (FROM_FOLDER if data else FROM_HUB)
        measurement = job.OnPaper(
            text_sets=text_sets(sets, folder=data, prompts=extent.prompts),
            extent=extent,
            must_fit=sizes["length"] is not None,
            **{name: given[name] for name in _OF_THE_JOB},
            log=folder / "log.jsonl",
            **pair.pair_options,
        )
        done = job.measure_paper(measurement, say_line, shown)
        keep = partial(write_all, done.report, folder, writing)
        return Measured(on_terminal(done.report), done.report, done.interrupted, keep)

    return run_and_report(measure, None)


NARROWEST = 80
GAP = 2
"""Number of characters between two columns, including a border of the grid."""


class _Column(NamedTuple):
    title: str
    kind: str
    cells: Sequence[tuple[str, ...]]
    """Cells from top to bottom; a cell is a sequence of text lines."""

    @property
    def width(self) -> int:
        """Width of the widest cell, or of the title's widest word if that is wider."""
        return max(map(len, (*self.title.split(), *(line for cell in self.cells for line in cell))), default=0)


def text(report: "PaperReport", width: int) -> str:
    """The whole report, in lines of at most `width` characters, or `NARROWEST` characters if `width` is smaller."""
    from dynatui.lab.bench.paper import claims, tables  # noqa: PLC0415 - imports torch
    from dynatui.lab.bench.paper.published import corrections  # noqa: PLC0415
    from dynatui.lab.bench.paper.write import setup  # noqa: PLC0415

    shown = max(width, NARROWEST)
    parts = [part for table in (setup(report), *tables.tables(report)) for part in _table(table, shown)]
    parts += _section(
        "Where the paper's own numbers do not hold",
        "Known from the paper's text and its authors' code and logs; not measured here.",
        _listed(("-", f"{each.says} ({each.source})") for each in corrections()),
    )
    judged, noise = claims.claims(report), " ".join(tables.conditions(report))
    for data_set in dict.fromkeys(claim.data_set for claim in judged):
        these = (_judged(claim) for claim in judged if claim.data_set == data_set)
        parts += _section(f"The paper's claims: {data_set}", noise, _listed(these))
    if why := claims.left_out(report):
        parts += _section("The paper's claims", why)
    out = StringIO()
    console = Console(file=out, width=shown, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    """The table as a section, in parts of at most `width`. If the last part has only words, a note replaces it."""
    kinds = [column.kind for column in table.columns]
    columns = [
        _Column(
            clean_line(column.title),
            column.kind,
            [tuple(map(clean_line, lines(row[place], column.digits))) for row in table.rows],
        )
        for place, column in enumerate(table.columns)
    ]
    count = next((place for place, kind in enumerate(kinds) if kind in ("measured", "paper")), len(kinds))
    names, parts = columns[:count], list(_parts(columns[:count], columns[count:], width))
    notes = table.notes
    if len(parts) > 1 and all(column.kind == "words" for column in parts[-1]):
        notes = (_sentence(parts.pop()[-1], names), *notes)
    yield from _section(table.title, table.what, *(_grid([*names, *part]) for part in parts))
    yield _listed(map(_marked, notes))


def _parts(names: Sequence[_Column], others: Sequence[_Column], width: int) -> Iterator[list[_Column]]:
    """Splits columns into parts that fit beside `names`; a column of paper values stays with its measured column."""
    groups: list[list[_Column]] = []
    for column in others:
        if column.kind == "paper" and groups:
            groups[-1].append(column)
        else:
            groups.append([column])
    part: list[_Column] = []
    for group in groups:
        if part and sum(column.width + GAP for column in (*names, *part, *group)) - GAP > width:
            yield part
            part = []
        part = [*part, *group]
    yield part


def _sentence(words: _Column, names: Sequence[_Column]) -> str:
    """For each value of a column, the names of the rows with this value, then the value. The most frequent value comes
    last, after "others", or after "all" if it is the only value.
    """
    rows: dict[str, list[str]] = {}
    for cell, *name in zip(words.cells, *(column.cells for column in names), strict=True):
        rows.setdefault(" ".join(cell), []).append(" ".join(line for lines in name for line in lines))
    usual = max(rows, key=lambda value: len(rows[value]))
    unusual = [f"{', '.join(those)}: {value}; " for value, those in rows.items() if value != usual]
    return f"{words.title.capitalize()}: {''.join(unusual)}{'others' if unusual else 'all'} {usual}."


def _section(title: str, what: str, *parts: RenderableType) -> Iterator[RenderableType]:
    yield from map(_words, (f"\n{'=' * min(len(title), NARROWEST)}", title, what))
    for part in parts:
        yield ""
        yield part


def _grid(columns: Sequence[_Column]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    for column in columns:
        grid.add_column(_words(column.title), justify="left" if column.kind == "words" else "right", overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        grid.add_row(*(_words("\n".join(cell)) for cell in row))
    return grid


def _listed(items: Iterable[tuple[str, str]]) -> Grid:
    """A list of pairs (mark, item), where the mark is, for example, a dash or a verdict."""
    grid = Grid.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for mark, item in items:
        grid.add_row(_words(mark), _words(item))
    return grid


def _marked(note: str) -> tuple[str, str]:
    """The mark of a note (empty if the note has none), and the note's text."""
    mark, _, rest = note.partition(" ")
    return (mark, rest) if mark.startswith("[") else ("", note)


def _judged(claim: "JudgedClaim") -> tuple[str, str]:
    """Verdict of a claim, and its text: the paper's claim, the measured value, and the test."""
    doubt = f" ({claim.doubt})" if claim.doubt else ""
    paper = "" if claim.paper is None else f"; paper {claim.paper:.3f}{doubt}"
    must = f", must be {'under' if claim.below else 'over'} {claim.limit:g}" if claim.by_quotient else ""
    mean, *interval = lines(claim.here, 3)
    here = f"{mean} ({interval[0]})" if interval else mean
    return claim.verdict, f"{claim.says} ({claim.source})\nhere {here}{must}{paper}\n{claim.tested}\n"


def _words(text: str) -> Text:
    return Text("\n".join(map(clean_line, text.split("\n"))))


WITHOUT_FIGURES = "matplotlib is not installed, so no figures are drawn; for figures, run pip install 'dynatui[bench]'"
Writer: TypeAlias = Callable[["PaperReport", Path], list[Path]]
"""(report, folder) -> paths of the files written to the folder."""


def writers() -> tuple[Writer, ...]:
    """Functions that write the files of a report, in the order in which they are to be called."""
    from dynatui.lab.bench.paper.write import FIGURES, draw, write  # noqa: PLC0415 - imports torch

    def drawn(report: "PaperReport", folder: Path) -> list[Path]:
        return draw(report, folder / FIGURES)

    drawable = find_spec("matplotlib") is not None
    if not drawable:
        streams.say(WITHOUT_FIGURES)
    # The figures are drawn after all other files are written, so that the other files exist even if drawing fails.
    # Then `write` is called again, since the page of the report links to the figures that exist.
    return (write, drawn, write) if drawable else (write,)


def on_terminal(report: "PaperReport") -> str:
    """All tables and claims of a report as text, in the width of the terminal."""
    return text(report, get_terminal_size().columns)


def write_all(report: "PaperReport", folder: Path, writing: Sequence[Writer]) -> None:
    """Writes the report as JSON, then the files of all writers, and prints the name of the folder."""
    write_whole(folder / "report.json", msgspec.json.encode(report))
    written = {path for write in writing for path in write(report, folder)}
    streams.say(f"wrote {1 + len(written)} files to {folder}")
