"""Every drafted row is computed in a sequence of exactly the rows above it, for any number of sequences."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.forward.llama_cpp.drafted import TEXT, Sequences, Step
from tests.decoder.llama_cpp_trees import LENGTH, grown, trees
from tests.decoder.property_settings import examples


@dataclass
class Memory:
    """A model of llama.cpp's memory: the drafted rows of each sequence in order of position."""

    drafted: Sequences
    held: dict[int, list[int]] = field(default_factory=lambda: {0: []})
    computed: list[int] = field(default_factory=list)
    most: int = 0

    def run(self, step: Step) -> None:
        """Applies a step as the cache does, and checks each row."""
        if step.cut:
            self.held[0] = []
        for sequence in step.dropped:
            del self.held[sequence]
        for copy in step.copies:
            assert copy.target not in self.held, "a copy goes to an empty sequence"
            below = [row for row in self.held[copy.source] if self.drafted.rows[row].position < copy.end]
            self.held[copy.target] = below
        for row, sequences in step.rows:
            for sequence in sequences:
                assert self.held[sequence] == self.drafted.above(row)[:-1]
            for sequence in sequences:
                self.held[sequence].append(row)
        self.computed += [row for row, _ in step.rows]
        self.most = max(self.most, len(step.rows))


@examples(150)
@given(passes=st.lists(trees, min_size=1, max_size=4), count=st.integers(3, 8), rows=st.integers(1, 8))
def test_each_row_follows_exactly_its_path(passes: list[list[int]], count: int, rows: int) -> None:
    drafted = Sequences(count, rows)
    drafted.restart(LENGTH)
    memory = Memory(drafted)
    for numbers in passes:
        new = grown(drafted, memory.run, numbers)
        assert set(new) <= set(memory.computed)
    assert memory.most <= rows
    assert set(memory.held) <= set(range(count))
    for row, sequence in drafted.holders.items():
        assert memory.held[sequence][: len(drafted.above(row))] == drafted.above(row)


def test_a_tree_takes_one_pass_where_sequences_suffice() -> None:
    drafted, steps = Sequences(8, 16), list[Step]()
    drafted.restart(LENGTH)
    new = drafted.add([1, 2, 3, 4], [5, 6, 6, 7], [TEXT, 0, 0, 1])
    drafted.steps(new, steps.append)
    (step,) = steps
    assert {row: len(sequences) for row, sequences in step.rows} == {0: 2, 1: 1, 2: 1, 3: 1}
    assert step.rows[2][1] != step.rows[3][1]


def test_rows_that_had_to_leave_are_computed_again_when_one_follows_them() -> None:
    drafted = Sequences(3, 16)
    drafted.restart(LENGTH)
    memory = Memory(drafted)
    drafted.steps(drafted.add([1] * 6, [5] * 6, [TEXT] * 6), memory.run)
    assert 1 not in drafted.holders
    drafted.steps(drafted.add([7], [6], [1]), memory.run)
    assert memory.computed == [0, 1, 2, 3, 4, 5, 1, 6]


def test_a_gap_of_positions_is_refused_and_leaves_no_row() -> None:
    drafted = Sequences(4, 8)
    drafted.restart(LENGTH)
    with pytest.raises(ValueError, match="position 7 cannot follow a row at position 5"):
        drafted.add([1, 2], [5, 7], [TEXT, 0])
    assert not drafted.rows
