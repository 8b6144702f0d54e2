"""Sequences of llama.cpp for the rows of a draft tree: which sequence holds which path, and the calls that make it so.

llama.cpp has no tree mask: a row attends to the cached rows of its own sequence. So every path from the text to a leaf
has a sequence, a row belongs to the sequences of all leaves below it, and sequence 0 holds the text. There are few
sequences. Where they do not suffice, the pass is divided, and paths that are not needed leave the cache; a row that has
left it is computed again once a later row or the text needs it. Pure bookkeeping: knows no library.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TEXT = -1
"""Stands for the end of the text, in place of a row's number."""


@dataclass
class Row:
    """A drafted row."""

    token: int
    position: int
    parent: int
    """Number of the parent row, or `TEXT`."""
    sequence: int | None = None
    """A sequence that holds the row and all rows above it; None if it is not in the cache."""


@dataclass(frozen=True)
class Copy:
    """Copies a sequence's rows at positions below `end` to a new sequence."""

    source: int
    target: int
    end: int


@dataclass
class Step:
    """One pass of llama.cpp: calls before it, then rows by number in ascending order, each with its sequences."""

    cut: bool = False
    """Whether all rows of sequence 0 beyond the text are dropped first."""
    dropped: list[int] = field(default_factory=list)
    """Sequences that are dropped before the copies."""
    copies: list[Copy] = field(default_factory=list)
    rows: dict[int, list[int]] = field(default_factory=dict)


class Sequences:
    """Drafted rows of one text, and the sequences that hold them."""

    def __init__(self, count: int, most_rows: int) -> None:
        """Manages `count` sequences, at least 3, and passes of at most `most_rows` rows."""
        self.rows: list[Row] = []
        self._count, self._most_rows = count, most_rows
        self.restart(0)

    def restart(self, length: int) -> None:
        """Forgets all drafted rows; the text has `length` rows, all in sequence 0."""
        self.length = length
        self.rows.clear()
        self._ends = {0: TEXT}
        """Last row of each sequence in use."""
        self._free = list(range(self._count - 1, 0, -1))

    @property
    def in_use(self) -> bool:
        """Whether any drafted row is in the cache."""
        return self._ends != {0: TEXT}

    @property
    def branches(self) -> bool:
        """Whether any sequence but sequence 0 is in use."""
        return len(self._ends) > 1

    def add(self, tokens: Sequence[int], positions: Sequence[int], parents: Sequence[int]) -> list[int]:
        """Numbers of new rows, which are not in the cache yet.

        Raises:
            ValueError: A row does not directly follow its parent, which llama.cpp would compute wrongly or refuse.
        """
        first = len(self.rows)
        for token, position, parent in zip(tokens, positions, parents, strict=True):
            above = self.rows[parent].position if parent != TEXT else self.length - 1
            if position != above + 1:
                del self.rows[first:]
                raise ValueError(f"a row at position {position} follows one at position {above}")
            self.rows.append(Row(token, position, parent))
        return list(range(first, len(self.rows)))

    def steps(self, wanted: Sequence[int], run: Callable[[Step], None]) -> None:
        """Brings rows into the cache by steps, each of which is passed to `run`."""
        pending = list(wanted)
        while pending:
            step = self._step(pending)
            run(step)
            pending = [row for row in pending if row not in step.rows]

    def above(self, row: int) -> list[int]:
        """Numbers of all rows on the path from the text to this row, which is the last one."""
        path = []
        while row != TEXT:
            path.append(row)
            row = self.rows[row].parent
        return path[::-1]

    def _step(self, pending: Sequence[int]) -> Step:
        """The next step; its rows count as cached from now on."""
        step, parents = Step(), {self.rows[row].parent for row in pending}
        ends = dict[int, int]()
        for leaf in (row for row in pending if row not in parents):
            missing = [row for row in self.above(leaf) if self.rows[row].sequence is None][: self._most_rows]
            more = sum(row not in step.rows for row in missing)
            if len(step.rows) + more > self._most_rows:
                break
            sequence = self._sequence(self.rows[missing[0]].parent, step)
            if sequence is None:
                break
            ends[sequence] = missing[-1]
            for row in missing:
                step.rows.setdefault(row, []).append(sequence)
        for row, held_by in step.rows.items():
            self.rows[row].sequence = held_by[0]
        self._ends |= ends
        step.rows = dict(sorted(step.rows.items()))
        return step

    def _sequence(self, parent: int, step: Step) -> int | None:
        """A sequence that ends in `parent`, for one new path; None if the path must wait for the next step."""
        ready = next((sequence for sequence, end in self._ends.items() if end == parent), None)
        if ready is None and not self._free:
            if step.rows:
                return None
            self._make_room(parent, step)
            ready = next((sequence for sequence, end in self._ends.items() if end == parent), None)
        if ready is None:
            ready = self._free.pop()
            held_by = self.rows[parent].sequence if parent != TEXT else 0
            assert held_by is not None, "a path begins below a cached row"  # noqa: S101 - a programmer's mistake
            end = self.rows[parent].position + 1 if parent != TEXT else self.length
            step.copies.append(Copy(held_by, ready, end))
        # Marks the sequence as taken by an end that is no row; the caller then sets the last row of the new path.
        self._ends[ready] = len(self.rows)
        return ready

    def _make_room(self, parent: int, step: Step) -> None:
        """Drops all sequences but the one that holds `parent`, and all of sequence 0 beyond the text."""
        kept = self.rows[parent].sequence if parent != TEXT else 0
        step.dropped = [sequence for sequence in self._ends if sequence not in (0, kept)]
        step.cut = kept != 0 and self._ends[0] != TEXT
        self._ends = {sequence: end for sequence, end in self._ends.items() if sequence in (0, kept)}
        self._free = [number for number in range(self._count - 1, 0, -1) if number != kept]
        if kept != 0:
            self._ends[0] = TEXT
        for row in self.rows:
            row.sequence = None
        if kept is not None:
            for number in self.above(self._ends[kept]):
                self.rows[number].sequence = kept
