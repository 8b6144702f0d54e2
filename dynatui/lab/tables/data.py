"""A table as data, and the text of a cell."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from decoder.analysis.interval import Interval

UNKNOWN = "-"
R = TypeVar("R")


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """Number printed in the paper, for comparison with a measured number."""

    value: float
    std: float | None = None
    again: float | None = None
    source: str
    mark: str = ""
    """Mark that refers to the number's note; empty if the number has no note."""


Cell: TypeAlias = Interval | Printed | str | float | None
"""Content of a cell: a value with its interval, a number printed in the paper, text, a plain number, or None."""


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
    """Text of a cell, in one line or two."""
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
