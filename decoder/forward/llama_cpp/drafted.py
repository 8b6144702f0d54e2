"""Drafted rows of one text, the sequences of llama.cpp that hold them, and the passes that compute them.

Rows are numbered in the order in which they are added; a row's parent comes before it. llama.cpp has no tree mask: a
row attends to the cached rows of its own sequence. Sequence 0 holds the text. If there are too few sequences for all
paths, the pass is divided, and paths that are not needed are dropped; a dropped row is computed again when a later row
or the text needs it. Pure bookkeeping, without calls of the library.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TEXT = -1
"""Parent of a row that directly follows the text."""


@dataclass
class TreeRow:
    token: int
    position: int
    parent: int


@dataclass(frozen=True)
class Copy:
    """A call of llama.cpp that copies a sequence's rows at positions below `end` to a new sequence."""

    source: int
    target: int
    end: int


@dataclass
class LlamaPass:
    """One pass of llama.cpp, and the calls that must precede it."""

    cut: bool = False
    """Whether the rows of sequence 0 after the text are dropped first."""
    dropped: list[int] = field(default_factory=list)
    """Sequences that are dropped before the copies."""
    copies: list[Copy] = field(default_factory=list)
    rows: list[tuple[int, list[int]]] = field(default_factory=list)
    """Rows in the order of the pass, each with its sequences; a row may occur several times."""


class DraftedRows(ABC):
    """A subclass decides which sequence of llama.cpp holds which rows."""

    def __init__(self) -> None:
        self.rows: list[TreeRow] = []
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
    def step(self, pending: Sequence[int]) -> LlamaPass:
        """The next pass, for at least some of the pending rows; the rows of the pass count as cached from now on."""

    def add(self, tokens: Sequence[int], positions: Sequence[int], parents: Sequence[int]) -> list[int]:
        """Adds rows, which are not in the cache yet; returns their numbers. Raises ValueError if a row's position is
        not its parent's position plus 1; llama.cpp would compute such a row wrongly, or refuse it.
        """
        first = len(self.rows)
        for token, position, parent in zip(tokens, positions, parents, strict=True):
            above = self.rows[parent].position if parent != TEXT else self.length - 1
            if position != above + 1:
                del self.rows[first:]
                raise ValueError(f"a row at position {position} cannot follow a row at position {above}")
            self.rows.append(TreeRow(token, position, parent))
        return list(range(first, len(self.rows)))

    def steps(self, wanted: Sequence[int], run: Callable[[LlamaPass], None]) -> None:
        """Calls `run` with one pass after the other until all wanted rows are computed."""
        pending = list(wanted)
        while pending:
            step = self.step(pending)
            run(step)
            computed = {row for row, _ in step.rows}
            pending = [row for row in pending if row not in computed]

    def above(self, row: int) -> list[int]:
        """The path from the text to `row`, inclusive."""
        path = []
        while row != TEXT:
            path.append(row)
            row = self.rows[row].parent
        return path[::-1]

    def leaves(self, rows: Sequence[int]) -> list[int]:
        """The rows that are not parents of other rows of `rows`."""
        parents = {self.rows[row].parent for row in rows}
        return [row for row in rows if row not in parents]


class Sequences(DraftedRows):
    """Sequences of a model without states: paths share rows, and rows can be dropped from the end of a sequence."""

    def __init__(self, count: int, most_rows: int) -> None:
        """Manages `count` sequences, at least 3."""
        super().__init__()
        self._count, self._most_rows = count, most_rows
        self.restart(0)

    def restart(self, length: int) -> None:
        super().restart(length)
        self.holders: dict[int, int] = {}
        """For each cached drafted row, a sequence that holds the row and all its ancestors."""
        self._ends = {0: TEXT}
        """Last row of each sequence in use."""
        self._free = list(range(self._count - 1, 0, -1))

    @property
    def in_use(self) -> bool:
        return self._ends != {0: TEXT}

    @property
    def branches(self) -> bool:
        return len(self._ends) > 1

    @property
    def cells(self) -> int:
        return len(self.rows)

    def step(self, pending: Sequence[int]) -> LlamaPass:
        step, members = LlamaPass(), dict[int, list[int]]()
        ends = dict[int, int]()
        for leaf in self.leaves(pending):
            missing = [row for row in self.above(leaf) if row not in self.holders][: self._most_rows]
            more = sum(row not in members for row in missing)
            if len(members) + more > self._most_rows:
                break
            sequence = self._sequence(self.rows[missing[0]].parent, step, first=not members)
            if sequence is None:
                break
            ends[sequence] = missing[-1]
            for row in missing:
                members.setdefault(row, []).append(sequence)
        self.holders |= {row: held_by[0] for row, held_by in members.items()}
        self._ends |= ends
        step.rows = sorted(members.items())
        return step

    def _sequence(self, parent: int, step: LlamaPass, *, first: bool) -> int | None:
        """A sequence that ends in `parent`, for one new path; None if the path must wait for the next step."""
        ready = next((sequence for sequence, end in self._ends.items() if end == parent), None)
        if ready is None and not self._free:
            if not first:
                return None
            self._make_room(parent, step)
            ready = next((sequence for sequence, end in self._ends.items() if end == parent), None)
        if ready is None:
            ready = self._free.pop()
            held_by = self.holders[parent] if parent != TEXT else 0
            end = self.rows[parent].position + 1 if parent != TEXT else self.length
            step.copies.append(Copy(held_by, ready, end))
        # This entry marks the sequence as taken: its end is a number that no row has yet. The caller replaces it by the
        # path's last row.
        self._ends[ready] = len(self.rows)
        return ready

    def _make_room(self, parent: int, step: LlamaPass) -> None:
        """Frees all sequences except 0 and the holder of `parent`; cuts 0 to the text unless 0 is the holder."""
        kept = self.holders.get(parent) if parent != TEXT else 0
        step.dropped = [sequence for sequence in self._ends if sequence not in (0, kept)]
        step.cut = kept != 0 and self._ends[0] != TEXT
        self._ends = {sequence: end for sequence, end in self._ends.items() if sequence in (0, kept)}
        self._free = [number for number in range(self._count - 1, 0, -1) if number != kept]
        if kept != 0:
            self._ends[0] = TEXT
        self.holders = {}
        if kept is not None:
            self.holders = dict.fromkeys(self.above(self._ends[kept]), kept)


STATES = 16
"""Number of sequences, each with memory for a state: one for the text, one for a snapshot, all others for drafts."""


class Paths(DraftedRows):
    """Sequences of a model with states: a sequence for each path, since a state cannot be reset to an earlier state."""

    def __init__(self, count: int, most_rows: int) -> None:
        """Manages the sequences 1 to `count`."""
        super().__init__()
        self._count, self._most_rows = count, most_rows
        self.ends: dict[int, int] = {}
        """Last row of each sequence in use."""

    def restart(self, length: int) -> None:
        super().restart(length)
        self.forget()

    def forget(self) -> None:
        """Records that no sequence holds drafted rows."""
        self.ends = {}

    @property
    def cells(self) -> int:
        return sum(len(self.above(leaf)) for leaf in self.leaves(range(len(self.rows))))

    def holder(self, path: Sequence[int]) -> tuple[int, int]:
        """Length of the longest prefix of a path that a sequence holds, and this sequence; (0, 0) if there is none."""
        numbers = {row: number for number, row in enumerate(path, 1)}
        return max(((numbers[end], sequence) for sequence, end in self.ends.items() if end in numbers), default=(0, 0))

    def step(self, pending: Sequence[int]) -> LlamaPass:
        # llama.cpp computes sequences together only if their numbers are successive. If the longest paths come first,
        # the sequences that still have rows to compute keep successive numbers for as long as possible.
        ways = sorted(map(self._way, self.leaves(pending)), key=len, reverse=True)
        step = LlamaPass(dropped=self._unneeded([base for base, *_ in ways]))
        self.ends = {sequence: end for sequence, end in self.ends.items() if sequence not in step.dropped}
        free = [number for number in range(self._count, 0, -1) if number not in self.ends]
        sources = {TEXT: 0} | {end: sequence for sequence, end in self.ends.items()}
        continuing = dict[int, list[int]]()
        for sequence, end in self.ends.items():
            continuing.setdefault(end, []).append(sequence)
        for base, *rest in ways:
            missing = rest[: self._most_rows]
            if len(step.rows) + len(missing) > self._most_rows:
                break
            if continuing.get(base):
                sequence = continuing[base].pop()
            elif free:
                sequence = free.pop()
                end = self.rows[base].position + 1 if base != TEXT else self.length
                step.copies.append(Copy(sources[base], sequence, end))
            else:
                continue
            self.ends[sequence] = missing[-1]
            step.rows += [(row, [sequence]) for row in missing]
        step.rows.sort(key=lambda each: (each[1], each[0]))
        return step

    def _way(self, leaf: int) -> list[int]:
        """The last row on a leaf's path at which a sequence ends, or `TEXT`; then all later rows of the path."""
        path = [TEXT, *self.above(leaf)]
        ends = {TEXT, *self.ends.values()}
        return path[max(number for number, row in enumerate(path) if row in ends) :]

    def _unneeded(self, bases: Sequence[int]) -> list[int]:
        """Sequences to drop before paths are computed below `bases`: none if the free sequences suffice."""
        copies = len(bases) - len(set(bases) - {TEXT})
        if len(self.ends) + copies <= self._count:
            return []
        return [sequence for sequence, end in self.ends.items() if end not in bases]
