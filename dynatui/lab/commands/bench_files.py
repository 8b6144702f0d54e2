"""Files of `dynatui bench paper`, each written completely or not at all, and the report as text for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from decoder.system.whole_files import write_whole
from dynatui.clean import clean_line
from dynatui.lab.tables.data import Table, lines
from dynatui.terminal import streams

if TYPE_CHECKING:
    from dynatui.lab.bench.paper.claims import JudgedClaim
    from dynatui.lab.bench.paper.report import PaperReport


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
