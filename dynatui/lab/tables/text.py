"""Plain text of limited width: tables with fixed-width columns, numbers, and sentences."""

from collections.abc import Callable, Iterator, Sequence

from decoder.analysis.interval import Interval
from dynatui.lab.tables.data import UNKNOWN, Table, lines, number

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


def counted(count: int, thing: str) -> str:
    """For example 1 prompt or 2 prompts."""
    return f"{count} {thing}{'s' * (count != 1)}"


def cut(line: str, width: int = WIDTH) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."


def wrapped(sentence: str, width: int = WIDTH) -> Iterator[str]:
    """Lines of a sentence, without leading spaces; a word longer than the width is not broken."""
    line = ""
    for word in sentence.split(" "):
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    (first, *others), (width, *more) = row, widths
    *above, last = first.split("\n")
    yield from above
    yield (f"{last:<{width}}" + "".join(f"{cell:>{each}}" for cell, each in zip(others, more, strict=True))).rstrip()
