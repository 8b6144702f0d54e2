"""A table as lines of text with columns of fixed width, and how figures and sentences fit into them."""

from collections.abc import Callable, Iterator, Sequence

from decoder.analysis.interval import Interval
from decoder.tables.data import UNKNOWN, Table, lines, number

WIDTH = 80
"""Columns of a report as text."""


def text(table: Table) -> str:
    """The title, where there is one, the heads, the rows and the notes, each a line.

    The first column is aligned to the left, all others to the right. Of a first cell of several lines the last one
    stands beside the others.
    """
    heads = [column.title for column in table.columns]
    rows = [
        [" ".join(lines(cell, column.digits)) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    widths = [column.width or 0 for column in table.columns]
    body = [line for row in (heads, *rows) for line in _aligned(row, widths)]
    return "\n".join([*filter(None, [table.title]), *body, *table.notes])


def interval(found: Interval | None, written: Callable[[float], str]) -> str:
    """A value and the ends of its interval: 1.23 1.20-1.26."""
    if found is None:
        return UNKNOWN
    ends = "" if found.low is None or found.high is None else f" {written(found.low)}-{written(found.high)}"
    return f"{written(found.value)}{ends}"


def short(value: float | None) -> str:
    """A ratio or a rate in digits that fit a narrow column."""
    return number(value, 2 if value is None or value < 10 else 1)


def hundredths(value: float) -> str:
    """With two digits behind the point."""
    return f"{value:.2f}"


def counted(count: int, thing: str) -> str:
    """So many things."""
    return f"{count} {thing}{'s' * (count != 1)}"


def cut(line: str, width: int = WIDTH) -> str:
    """A line that is no longer than a page is wide."""
    return line if len(line) <= width else f"{line[: width - 3]}..."


def wrapped(sentence: str, width: int = WIDTH) -> Iterator[str]:
    """Its lines, without spaces at their beginnings; a longer word is not broken."""
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
