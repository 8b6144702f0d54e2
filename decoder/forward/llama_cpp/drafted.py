"""Drafted rows of one text, and the passes of llama.cpp that compute these rows.

Rows are numbered in the order in which they are added; a row's parent comes before it. Pure bookkeeping: knows no
library.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TEXT = -1
"""Parent number of a row that directly follows the text."""


@dataclass
class Row:
    """A drafted row."""

    token: int
    position: int
    parent: int
    """Number of the parent row, or `TEXT`."""


@dataclass(frozen=True)
class Copy:
    """A call of llama.cpp that copies a sequence's rows at positions below `end` to a new sequence."""

    source: int
    target: int
    end: int


@dataclass
class Step:
    """One pass of llama.cpp, and the calls before it."""

    cut: bool = False
    """Whether the rows of sequence 0 after the text are dropped first."""
    dropped: list[int] = field(default_factory=list)
    """Sequences that are dropped before the copies."""
    copies: list[Copy] = field(default_factory=list)
    rows: list[tuple[int, list[int]]] = field(default_factory=list)
    """Numbers of the rows in the order of the pass, each with its sequences; a row may occur several times."""


class DraftedRows(ABC):
    """Drafted rows of one text; a subclass decides which sequence of llama.cpp holds which rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.length = 0
        """Number of rows of the text."""

    def restart(self, length: int) -> None:
        """Forgets all drafted rows; the text now has `length` rows, all of them in sequence 0."""
        self.length = length
        self.rows.clear()

    @property
    @abstractmethod
    def cells(self) -> int:
        """Upper bound of the number of cache rows that all drafted rows together take."""

    @abstractmethod
    def step(self, pending: Sequence[int]) -> Step:
        """The next pass, which computes at least some of the pending rows. From now on, the rows of this pass count as
        cached.
        """

    def add(self, tokens: Sequence[int], positions: Sequence[int], parents: Sequence[int]) -> list[int]:
        """Adds new rows, which are not in the cache yet; returns their numbers.

        Raises:
            ValueError: The position of a row is not the next one after its parent's position; llama.cpp would compute
                such a row wrongly, or refuse it.
        """
        first = len(self.rows)
        for token, position, parent in zip(tokens, positions, parents, strict=True):
            above = self.rows[parent].position if parent != TEXT else self.length - 1
            if position != above + 1:
                del self.rows[first:]
                raise ValueError(f"a row at position {position} cannot follow a row at position {above}")
            self.rows.append(Row(token, position, parent))
        return list(range(first, len(self.rows)))

    def steps(self, wanted: Sequence[int], run: Callable[[Step], None]) -> None:
        """Divides the computation of rows into steps, and passes each step to `run`."""
        pending = list(wanted)
        while pending:
            step = self.step(pending)
            run(step)
            computed = {row for row, _ in step.rows}
            pending = [row for row in pending if row not in computed]

    def above(self, row: int) -> list[int]:
        """Numbers of the drafted rows on the path from the text to `row`; `row` is the last of them."""
        path = []
        while row != TEXT:
            path.append(row)
            row = self.rows[row].parent
        return path[::-1]

    def leaves(self, rows: Sequence[int]) -> list[int]:
        """The rows of `rows` that are not parents of other rows of `rows`."""
        parents = {self.rows[row].parent for row in rows}
        return [row for row in rows if row not in parents]
