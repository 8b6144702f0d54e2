"""Sequences of llama.cpp for the rows of a draft tree of a model with states: one sequence for each path.

A state cannot go back to an earlier token, and belongs to one sequence. So a sequence can be copied and continued only
at its end. Sequence 0 holds the text and no draft. A row above several leaves is computed once for the path of each
leaf. There are few sequences, since each needs memory for a whole state. If they do not suffice, the pass is divided,
and paths that no pending row continues are dropped from memory; before a later row can continue such a path, the path
is computed again from the text. Pure bookkeeping: knows no library.
"""

from collections.abc import Sequence

from decoder.forward.llama_cpp.drafted import TEXT, Copy, DraftedRows, Step

STATES = 16
"""Number of sequences of a context, each with memory for a state: one sequence for the text, one for a snapshot, and
all others for drafts.
"""


class Paths(DraftedRows):
    """Drafted rows of one text, and the sequences that hold paths of these rows."""

    def __init__(self, count: int, most_rows: int) -> None:
        """Manages the sequences 1 to `count`, and passes of at most `most_rows` rows."""
        super().__init__()
        self._count, self._most_rows = count, most_rows
        self.ends: dict[int, int] = {}
        """Last row of each sequence in use."""

    def restart(self, length: int) -> None:
        """See `DraftedRows`."""
        super().restart(length)
        self.forget()

    def forget(self) -> None:
        """Notes that no sequence holds a drafted row any longer."""
        self.ends = {}

    @property
    def cells(self) -> int:
        """See `DraftedRows`."""
        return sum(len(self.above(leaf)) for leaf in self.leaves(range(len(self.rows))))

    def holder(self, path: Sequence[int]) -> tuple[int, int]:
        """Finds the sequence whose drafted rows are the longest beginning of a path. Returns the number of these rows,
        and the sequence; (0, 0) if there is no such sequence.
        """
        numbers = {row: number for number, row in enumerate(path, 1)}
        return max(((numbers[end], sequence) for sequence, end in self.ends.items() if end in numbers), default=(0, 0))

    def step(self, pending: Sequence[int]) -> Step:
        """See `DraftedRows`."""
        # llama.cpp computes sequences together only if their numbers are successive. If the longest paths come first,
        # the sequences that still have rows to compute keep successive numbers for as long as possible.
        ways = sorted(map(self._way, self.leaves(pending)), key=len, reverse=True)
        step = Step(dropped=self._unneeded([base for base, *_ in ways]))
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
        """The last row of a leaf's path at which a sequence ends, or `TEXT` if there is none; then all later rows of
        the path, which must be computed.
        """
        path = [TEXT, *self.above(leaf)]
        ends = {TEXT, *self.ends.values()}
        return path[max(number for number, row in enumerate(path) if row in ends) :]

    def _unneeded(self, bases: Sequence[int]) -> list[int]:
        """Sequences to drop before paths are computed below the rows `bases`: none if the free sequences suffice."""
        copies = len(bases) - len(set(bases) - {TEXT})
        if len(self.ends) + copies <= self._count:
            return []
        return [sequence for sequence, end in self.ends.items() if end not in bases]
