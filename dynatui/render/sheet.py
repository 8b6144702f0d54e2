"""The columns of figures in the panels' tables: right-aligned texts, as many columns as fit. Knows no figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    head: str
    cells: int
    value: Callable[[T], str]
    rank: int = 0
    """A narrow table omits the columns with the largest ranks, of equal ranks the last ones."""


class Sheet(Generic[T]):
    def __init__(self, columns: Sequence[Column[T]], room: int) -> None:
        ranked = sorted(columns, key=lambda column: column.rank)
        ends = accumulate(column.cells for column in ranked)
        fitting = [column for column, end in zip(ranked, ends, strict=True) if end <= room]
        self.columns = [column for column in columns if column in fitting]
        self.cells = sum(column.cells for column in fitting)
        self.heads = "".join(f"{column.head:>{column.cells}}" for column in self.columns)

    def row(self, one: T) -> str:
        return "".join(f"{column.value(one):>{column.cells}}" for column in self.columns)
