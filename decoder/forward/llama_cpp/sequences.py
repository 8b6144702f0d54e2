"""Sequences of llama.cpp for the rows of a draft tree: which sequence holds which path, and the calls that copy and
drop sequences.

llama.cpp has no tree mask: a row attends to the cached rows of its own sequence. So every path from the text to a leaf
has a sequence, a row belongs to the sequences of all leaves below it, and sequence 0 holds the text. There are few
sequences. If they do not suffice, the pass is divided, and paths that are not needed are dropped from the cache; a
dropped row is computed again when a later row or the text needs it. Pure bookkeeping: knows no library.
"""

from collections.abc import Sequence

from decoder.forward.llama_cpp.drafted import TEXT, Copy, DraftedRows, Step


class Sequences(DraftedRows):
    """Drafted rows of one text, and the sequences that hold them."""

    def __init__(self, count: int, most_rows: int) -> None:
        """Manages `count` sequences, at least 3, and passes of at most `most_rows` rows."""
        super().__init__()
        self._count, self._most_rows = count, most_rows
        self.restart(0)

    def restart(self, length: int) -> None:
        """See `DraftedRows`."""
        super().restart(length)
        self.holders: dict[int, int] = {}
        """For each cached row, one sequence that holds this row and all rows above it."""
        self._ends = {0: TEXT}
        """Last row of each sequence in use."""
        self._free = list(range(self._count - 1, 0, -1))

    @property
    def in_use(self) -> bool:
        """Whether any drafted row is in the cache."""
        return self._ends != {0: TEXT}

    @property
    def branches(self) -> bool:
        """Whether any sequence other than sequence 0 is in use."""
        return len(self._ends) > 1

    @property
    def cells(self) -> int:
        """See `DraftedRows`."""
        return len(self.rows)

    def step(self, pending: Sequence[int]) -> Step:
        """See `DraftedRows`."""
        step, members = Step(), dict[int, list[int]]()
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

    def _sequence(self, parent: int, step: Step, *, first: bool) -> int | None:
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

    def _make_room(self, parent: int, step: Step) -> None:
        """Drops all sequences except sequence 0 and the sequence that holds `parent`. Unless sequence 0 holds `parent`,
        the rows of sequence 0 after the text are dropped too.
        """
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
