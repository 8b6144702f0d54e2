"""A table as CSV: each part of a cell (such as an interval's ends) has its own column; numbers are not rounded."""

import csv
from collections.abc import Iterator, Sequence
from io import StringIO

from decoder.analysis.interval import Interval
from dynatui.lab.tables.data import Cell, Column, Printed, Table


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
