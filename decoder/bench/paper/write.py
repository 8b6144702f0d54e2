"""A report as files: a page in Markdown, each table as CSV, everything as JSON. Each file is complete or absent."""

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from urllib.parse import quote

import msgspec

from decoder.analysis.interval import Interval
from decoder.bench.paper import claims
from decoder.bench.paper.cells import Cell, Column, Printed, Table, lines
from decoder.bench.paper.claims_table import claims_table
from decoder.bench.paper.corrections import CORRECTIONS
from decoder.bench.paper.report import PaperReport
from decoder.bench.paper.setup_table import setup
from decoder.bench.paper.tables import conditions, tables
from decoder.whole_files import made_folder, write_whole

SCHEMA = 1
FIGURES, TABLES = "figures", "tables"
"""Folders beside the page."""


def write(report: PaperReport, folder: Path) -> list[Path]:
    """Writes `report.md`, `tables.json` and `tables/*.csv`; the page last, with a link to each picture in `figures/`.

    Raises:
        ConfigError: A file cannot be written.
    """
    judged = claims.claims(report)
    found = [setup(report), claims_table(judged, conditions(report), claims.left_out(report)), *tables(report)]
    contents = {folder / TABLES / f"{table.name}.csv": as_csv(table).encode() for table in found}
    contents[folder / "tables.json"] = _as_json(found, judged)
    contents[folder / "report.md"] = page(report, found, _pictures(folder)).encode()
    made_folder(folder / TABLES)
    for path, content in contents.items():
        write_whole(path, content)
    return list(contents)


def page(report: PaperReport, found: Sequence[Table], pictures: Sequence[str]) -> str:
    """The page in Markdown.

    Args:
        report: What was measured.
        found: All tables, setup and claims first.
        pictures: Paths of pictures, relative to the page.
    """
    asked = report.begun.asked
    about, said, *others = found
    parts = [
        f"# The DynaTree paper's experiments: {escaped(asked.target)} with {escaped(asked.draft)}",
        "Means over prompts ± their standard deviation, and 95 % bootstrap intervals over prompts. Speeds are of texts "
        "that equal plain decoding's alone; a method whose text is another is told as different, not as fast.",
        *_section(about),
        *_section(said),
        "## Where the paper's own numbers do not hold",
        "By its text, its authors' code and their logs; nothing in this section was measured here.",
        "\n".join(f"- {escaped(each.says)} *({escaped(each.source)})*" for each in CORRECTIONS),
        *(part for table in others for part in _section(table)),
        *["## Figures"] * bool(pictures),
        *(f"![{Path(path).stem}]({quote(path)})" for path in pictures),
    ]
    return "\n\n".join(parts) + "\n"


def as_csv(table: Table) -> str:
    """A table with a column for each part of a cell; numbers in full."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_heads(table.columns))
    for row in table.rows:
        writer.writerow(
            [part for cell, column in zip(row, table.columns, strict=True) for part in _parts(cell, column)]
        )
    return out.getvalue()


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    shown = "".join(f"\\{letter}" if letter in "\\`*_[]<>|#~" else letter for letter in text)
    return " ".join(shown.split())


def _section(table: Table) -> Iterator[str]:
    yield f"## {escaped(table.title)}"
    yield escaped(table.what)
    heads = [escaped(column.title) for column in table.columns]
    rules = ["---" if column.kind == "words" else "---:" for column in table.columns]
    rows = [
        [escaped(", ".join(lines(cell, column.digits))) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    if rows:
        yield "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))
    if table.notes:
        yield "\n".join(f"- {escaped(note)}" for note in table.notes)


def _pictures(folder: Path) -> list[str]:
    """One a figure, PNG before SVG."""
    found = {path.stem: path for suffix in (".svg", ".png") for path in (folder / FIGURES).glob(f"*{suffix}")}
    return [f"{FIGURES}/{path.name}" for _, path in sorted(found.items())]


def _heads(columns: Sequence[Column]) -> Iterator[str]:
    beside = ""
    for column in columns:
        match column.kind:
            case "measured":
                yield from (column.title, *(f"{column.title} {part}" for part in ("std", "low", "high")))
            case "paper":
                parts = ("", " std", " again", " source", " mark")
                yield from (f"{beside} paper{part}".strip() for part in parts)
            case _:
                yield column.title
        beside = column.title if column.kind != "paper" else beside


def _parts(cell: Cell, column: Column) -> Sequence[str | float | None]:
    match cell:
        case Interval(value=value, std=std, low=low, high=high):
            return value, std, low, high
        case Printed(value=value, std=spread, again=again, source=source, mark=mark):
            return value, spread, again, source, mark
        case _:
            return cell, *(None for _ in range({"measured": 3, "paper": 4}.get(column.kind, 0)))


def _as_json(found: Sequence[Table], judged: Sequence[claims.Claim]) -> bytes:
    corrections = [each._asdict() for each in CORRECTIONS]
    whole = {"schema": SCHEMA, "tables": found, "claims": judged, "corrections": corrections}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"
