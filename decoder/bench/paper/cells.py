"""A table as data, and how its cells are written: measured ones with spread and interval, the paper's with a mark.

Knows neither what is measured nor where a table is shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase
from typing import Literal, TypeAlias

import msgspec

from decoder.analysis.interval import Interval
from decoder.bench.paper.anchors import LOGS, Anchor

FROM_LOGS = "from the authors' logs, in no version of the paper"
AGAIN = "Behind a stroke: the same in another run of the authors'."


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """A number of the paper."""

    value: float
    std: float | None = None
    again: float | None = None
    source: str
    mark: str = ""
    """Of the note that says what is the matter with it."""


Cell: TypeAlias = Interval | Printed | str | float | None
"""Measured, or a quotient of measured ones, the paper's, words, a plain number, or nothing."""


class Column(msgspec.Struct, frozen=True):
    """What stands in it."""

    title: str
    kind: Literal["words", "number", "measured", "paper"] = "words"
    digits: int = 0
    """Behind the point."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    name: str
    """Of its file."""
    title: str
    what: str
    """What it shows, in a sentence."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]


def marks(remarks: Iterable[str]) -> dict[str, str]:
    """A mark for each remark: letters, then numbers; for the empty one none."""
    found = list(dict.fromkeys(filter(None, remarks)))
    return dict(zip(found, (*ascii_lowercase, *map(str, range(len(found)))), strict=False)) | {"": ""}


def explained(known: Mapping[str, str]) -> tuple[str, ...]:
    """Notes on what the marks mean."""
    return tuple(f"[{mark}] {remark}." for remark, mark in known.items() if mark)


def marked(
    rows: Sequence[Sequence[Cell | Anchor]], usual_length: int | None
) -> tuple[tuple[tuple[Cell, ...], ...], tuple[str, ...]]:
    """Rows with the paper's numbers marked, and the notes on them.

    Args:
        rows: Cells, those of the paper as anchors.
        usual_length: T that needs no note; None: each number has the T of its row.
    """
    shown = [cell for row in rows for cell in row if isinstance(cell, Anchor)]
    known = marks(_remark(anchor, usual_length) for anchor in shown)
    found = tuple(
        tuple(_printed(cell, known[_remark(cell, usual_length)]) if isinstance(cell, Anchor) else cell for cell in row)
        for row in rows
    )
    sources = sorted({anchor.source for anchor in shown})
    notes = [f"Paper: {', '.join(sources)}."] * bool(sources) + [AGAIN] * any(anchor.again for anchor in shown)
    return found, (*notes, *explained(known))


def lines(cell: Cell, digits: int) -> tuple[str, ...]:
    """A cell as text, of one or two lines."""
    match cell:
        case None:
            return ("-",)
        case str():
            return (cell,)
        case Interval(value=value, std=std, low=low, high=high):
            spread = f" ±{_number(std, digits)}" if std else ""
            return (f"{_number(value, digits)}{spread}", *(() if std == 0 else _interval(low, high, digits)))
        case Printed(again=again):
            return (_printed_text(cell, digits), *([] if again is None else [f"/ {_number(again, digits)}"]))
        case _:
            return (_number(cell, digits),)


def _printed_text(cell: Printed, digits: int) -> str:
    spread = "" if cell.std is None else f" ±{_number(cell.std, digits)}"
    return f"{_number(cell.value, digits)}{spread}{f' [{cell.mark}]' if cell.mark else ''}"


def _interval(low: float | None, high: float | None, digits: int) -> tuple[str, ...]:
    return () if low is None or high is None else (f"{_number(low, digits)} to {_number(high, digits)}",)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _printed(anchor: Anchor, mark: str) -> Printed:
    return Printed(value=anchor.value, std=anchor.std, again=anchor.again, source=anchor.source, mark=mark)


def _remark(anchor: Anchor, usual_length: int | None) -> str:
    """What must be known of a number of the paper; nothing in most cases."""
    length = f"at T={anchor.length}" if usual_length not in (None, anchor.length) else None
    return "; ".join(filter(None, (length, FROM_LOGS if anchor.source == LOGS else None, anchor.doubt)))
