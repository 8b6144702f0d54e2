"""Every drafted row is computed in a sequence of exactly the rows above it, for any number of sequences: rows that
sequences share, and the paths of a model whose states are copied as a whole.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.forward.llama_cpp.drafted import TEXT, LlamaPass, Paths, Sequences
from tests.decoder.llama_cpp_trees import LENGTH, grown, trees
from tests.decoder.property_settings import examples


@dataclass
class Memory:
    """A model of llama.cpp's memory: the drafted rows of each sequence in order of position."""

    drafted: Sequences | Paths
    held: dict[int, list[int]] = field(default_factory=lambda: {0: []})
    computed: list[int] = field(default_factory=list)
    most: int = 0

    @classmethod
    def begun(cls, drafted: Sequences | Paths) -> "Memory":
        drafted.restart(LENGTH)
        return cls(drafted)

    def run(self, step: LlamaPass) -> None:
        """Applies a step as the cache does, and checks each row."""
        if step.cut:
            self.held[0] = []
        for sequence in step.dropped:
            del self.held[sequence]
        for copy in step.copies:
            assert copy.target not in self.held, "a copy goes to an empty sequence"
            below = [row for row in self.held[copy.source] if self.drafted.rows[row].position < copy.end]
            if isinstance(self.drafted, Paths):
                assert (below, copy.end) == (self.held[copy.source], LENGTH + len(below)), "as a whole"
            self.held[copy.target] = below
        states = isinstance(self.drafted, Paths)
        for row, sequences in step.rows:
            assert not states or (len(sequences) == 1 and sequences[0] > 0), "the text's state is left alone"
            for sequence in sequences:
                assert self.held[sequence] == self.drafted.above(row)[:-1]
                if states:
                    self.held[sequence].append(row)
            if not states:
                for sequence in sequences:
                    self.held[sequence].append(row)
        self.computed += [row for row, _ in step.rows]
        self.most = max(self.most, len(step.rows))


def checked(memory: Memory, passes: list[list[int]], rows: int) -> None:
    for numbers in passes:
        assert set(grown(memory.drafted, memory.run, numbers)) <= set(memory.computed)
    assert memory.most <= rows


@examples(150)
@given(passes=st.lists(trees, min_size=1, max_size=4), count=st.integers(3, 8), rows=st.integers(1, 8))
def test_each_row_follows_exactly_its_path(passes: list[list[int]], count: int, rows: int) -> None:
    drafted = Sequences(count, rows)
    memory = Memory.begun(drafted)
    checked(memory, passes, rows)
    assert set(memory.held) <= set(range(count))
    for row, sequence in drafted.holders.items():
        assert memory.held[sequence][: len(drafted.above(row))] == drafted.above(row)


@examples(150)
@given(passes=st.lists(trees, min_size=1, max_size=4), count=st.integers(2, 8), rows=st.integers(1, 8))
def test_each_row_of_a_model_with_states_follows_exactly_its_path(
    passes: list[list[int]], count: int, rows: int
) -> None:
    drafted = Paths(count, rows)
    memory = Memory.begun(drafted)
    checked(memory, passes, rows)
    assert set(memory.held) == {0, *drafted.ends} <= set(range(count + 1))
    for sequence, end in drafted.ends.items():
        assert memory.held[sequence] == drafted.above(end)
    assert sum(len(memory.held[sequence]) for sequence in memory.held) <= drafted.cells


def test_a_tree_takes_one_pass_where_sequences_suffice() -> None:
    drafted, steps = Sequences(8, 16), list[LlamaPass]()
    drafted.restart(LENGTH)
    new = drafted.add([1, 2, 3, 4], [5, 6, 6, 7], [TEXT, 0, 0, 1])
    drafted.steps(new, steps.append)
    (step,) = steps
    assert {row: len(sequences) for row, sequences in step.rows} == {0: 2, 1: 1, 2: 1, 3: 1}
    assert step.rows[2][1] != step.rows[3][1]


def test_rows_that_had_to_leave_are_computed_again_when_one_follows_them() -> None:
    drafted = Sequences(3, 16)
    memory = Memory.begun(drafted)
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


@pytest.mark.parametrize(
    ("count", "passes", "computed", "held"),
    [
        pytest.param(7, [[0, 1, 1, 2]], [0, 1, 3, 0, 2], [[], [0, 1, 3], [0, 2]], id="one pass, rows in each path"),
        pytest.param(
            7, [[0], [1, 1], [1]], [0, 1, 2, 0, 3], [[], [0, 1], [0, 2], [0, 3]], id="siblings go on in the sequence"
        ),
        pytest.param(2, [[0], [1, 1], [2, 2]], [0, 1, 2, 3, 4], [[], [0, 1, 3], [0, 1, 4]], id="others make room"),
    ],
)
def test_paths_are_computed_in_few_rows(
    count: int, passes: list[list[int]], computed: list[int], held: list[list[int]]
) -> None:
    memory = Memory.begun(Paths(count, 16))
    for numbers in passes:
        grown(memory.drafted, memory.run, numbers)
    assert memory.computed == computed
    assert sorted(memory.held.values()) == held


def test_the_longest_held_part_of_a_path_is_found() -> None:
    drafted = Paths(7, 16)
    memory = Memory.begun(drafted)
    grown(drafted, memory.run, [0, 1, 2])
    assert drafted.holder([0, 1, 2]) == (3, 1)
    assert drafted.holder([0, 1]) == drafted.holder([]) == (0, 0)
    assert memory.held[1] == [0, 1, 2]
