"""A table: columns, rows of cells, notes, and how a cell reads."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from decoder.analysis.interval import Interval

UNKNOWN = "-"
R = TypeVar("R")


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
    """One column."""

    title: str
    kind: Literal["words", "number", "measured", "paper"] = "words"
    digits: int = 0
    """Behind the point."""
    width: int | UnsetType = UNSET
    """Characters in a text of fixed columns, the space before it among them."""


Spec: TypeAlias = tuple[Column, Callable[[R], Cell]]
"""A column, and the cell that a row has in it."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    name: str = ""
    """Of its file."""
    title: str = ""
    what: str = ""
    """What it shows, in a sentence."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def cells(specs: Sequence[Spec[R]], rows: Iterable[R]) -> tuple[tuple[Cell, ...], ...]:
    """A row of cells for each row."""
    return tuple(tuple(take(row) for _, take in specs) for row in rows)


def of_rows(specs: Sequence[Spec[R]], rows: Iterable[R], *, title: str = "", notes: Iterable[str] = ()) -> Table:
    """A table of these columns."""
    return Table(title=title, columns=tuple(column for column, _ in specs), rows=cells(specs, rows), notes=tuple(notes))


def lines(cell: Cell, digits: int) -> tuple[str, ...]:
    """A cell as text, of one or two lines."""
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
    """A figure, or a dash where it is not known."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> float | None:
    """A share as a figure of a hundred."""
    return None if share is None else 100 * share


def _interval(low: float | None, high: float | None, digits: int) -> tuple[str, ...]:
    return () if low is None or high is None else (f"{number(low, digits)} to {number(high, digits)}",)
