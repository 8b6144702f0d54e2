"""A table as data, the text of its cells, and writers in plain text, Markdown and CSV, for tables of any content."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from textwrap import wrap
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from decoder.analysis.interval import Interval

UNKNOWN = "-"
R = TypeVar("R")


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """Number printed in the DynaTree paper, for comparison with a measured number."""

    value: float
    std: float | None = None
    again: float | None = None
    """The same number from another run of the authors; None if there is no other run."""
    source: str
    mark: str = ""
    """Mark that refers to the number's note; empty if the number has no note."""


Cell: TypeAlias = Interval | Printed | str | float | None
"""Content of a cell: a value with its interval, a number printed in the paper, text, a number, or None (unknown)."""


class Column(msgspec.Struct, frozen=True):
    title: str
    kind: Literal["words", "number", "measured", "paper"] = "words"
    digits: int = 0
    """Digits after the decimal point."""
    width: int | UnsetType = UNSET
    """Width of the column in plain text, in characters, including the space before the column."""


Spec: TypeAlias = tuple[Column, Callable[[R], Cell]]
"""A column, and a function that returns a row's cell in that column."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    """Name of the table's file, without a suffix."""
    title: str = ""
    what: str = ""
    """Contents of the table, in a sentence."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def of_rows(specs: Sequence[Spec[R]], rows: Iterable[R], *, title: str = "", notes: Iterable[str] = ()) -> Table:
    cells = tuple(tuple(take(row) for _, take in specs) for row in rows)
    return Table(title=title, columns=tuple(column for column, _ in specs), rows=cells, notes=tuple(notes))


def lines(cell: Cell, digits: int) -> tuple[str, ...]:
    """Text of a cell, as one or two lines."""
    match cell:
        case str():
            return (cell,)
        case Interval(value=value, std=std, low=low, high=high):
            spread = f" ±{number(std, digits)}" if std else ""
            return (f"{number(value, digits)}{spread}", *(() if std == 0 else _interval(low, high, digits)))
        case Printed(value=value, std=std, again=again, mark=mark):
            spread = "" if std is None else f" ±{number(std, digits)}"
            whole = f"{number(value, digits)}{spread}{f' [{mark}]' if mark else ''}"
            return (whole, *([] if again is None else [f"/ {number(again, digits)}"]))
        case _:
            return (number(cell, digits),)


def number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _interval(low: float | None, high: float | None, digits: int) -> tuple[str, ...]:
    return () if low is None or high is None else (f"{number(low, digits)} to {number(high, digits)}",)


def as_csv(table: Table) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_heads(table.columns))
    for row in table.rows:
        writer.writerow(
            [part for cell, column in zip(row, table.columns, strict=True) for part in _parts(cell, column)]
        )
    return out.getvalue()


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


def section(table: Table) -> Iterator[str]:
    """Paragraphs of Markdown: heading, description, table, notes."""
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


def escaped(text: str) -> str:
    """Text on one line. Markdown's special characters are escaped, including those that separate table cells."""
    shown = "".join(f"\\{letter}" if letter in "\\`*_[]<>|#~" else letter for letter in text)
    return " ".join(shown.split())


WIDTH = 80
"""Width of a report as text, in characters."""


def text(table: Table) -> str:
    """Lines of a table: its title (if it has one), column names, rows and notes.

    The first column is aligned left, and all other columns are aligned right. If the first cell of a row has several
    lines, the other cells are printed on the last of these lines.
    """
    heads = [column.title for column in table.columns]
    rows = [
        [" ".join(lines(cell, column.digits)) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    widths = [column.width or 0 for column in table.columns]
    body = [line for row in (heads, *rows) for line in _aligned(row, widths)]
    return "\n".join([*filter(None, [table.title]), *body, *table.notes])


def interval(estimate: Interval | None, written: Callable[[float], str]) -> str:
    """A value and the ends of its interval, for example 1.23 1.20-1.26."""
    if estimate is None:
        return UNKNOWN
    ends = "" if estimate.low is None or estimate.high is None else f" {written(estimate.low)}-{written(estimate.high)}"
    return f"{written(estimate.value)}{ends}"


def short(value: float | None) -> str:
    """A ratio or a rate with few digits, for a narrow column."""
    return number(value, 2 if value is None or value < 10 else 1)


def hundredths(value: float) -> str:
    return f"{value:.2f}"


def cut(line: str, width: int = WIDTH) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."


def wrapped(sentence: str, width: int = WIDTH) -> list[str]:
    """Lines of a sentence, without leading spaces; a word longer than the width is not broken."""
    return wrap(sentence.strip(), width, break_long_words=False, break_on_hyphens=False)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    (first, *others), (width, *more) = row, widths
    *above, last = first.split("\n")
    yield from above
    yield (f"{last:<{width}}" + "".join(f"{cell:>{each}}" for cell, each in zip(others, more, strict=True))).rstrip()
