"""Each drafted row of a recurrent model is computed in a sequence of exactly its path; states are copied as a whole."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from decoder.forward.llama_cpp.drafted import Paths, Step
from tests.decoder.llama_cpp_trees import LENGTH, grown, trees
from tests.decoder.property_settings import examples


@dataclass
class Memory:
    """A model of llama.cpp's memory: the drafted rows of each sequence, whose state is that after its last row."""

    drafted: Paths
    held: dict[int, list[int]] = field(default_factory=lambda: {0: []})
    computed: list[int] = field(default_factory=list)
    most: int = 0

    def run(self, step: Step) -> None:
        """Applies a step as the cache does, and checks each row."""
        for sequence in step.dropped:
            del self.held[sequence]
        for copy in step.copies:
            assert copy.target not in self.held, "a copy goes to an empty sequence"
            assert copy.end == LENGTH + len(self.held[copy.source]), "a state is copied as a whole"
            self.held[copy.target] = list(self.held[copy.source])
        for row, (sequence,) in step.rows:
            assert sequence > 0, "the text's state is left alone"
            assert self.held[sequence] == self.drafted.above(row)[:-1]
            self.held[sequence].append(row)
            self.computed.append(row)
        self.most = max(self.most, len(step.rows))


def begun(count: int, most_rows: int) -> tuple[Paths, Memory]:
    drafted = Paths(count, most_rows)
    drafted.restart(LENGTH)
    return drafted, Memory(drafted)


@examples(150)
@given(passes=st.lists(trees, min_size=1, max_size=4), count=st.integers(2, 8), rows=st.integers(1, 8))
def test_each_row_follows_exactly_its_path(passes: list[list[int]], count: int, rows: int) -> None:
    drafted, memory = begun(count, rows)
    for numbers in passes:
        assert set(grown(drafted, memory.run, numbers)) <= set(memory.computed)
    assert memory.most <= rows
    assert set(memory.held) == {0, *drafted.ends} <= set(range(count + 1))
    for sequence, end in drafted.ends.items():
        assert memory.held[sequence] == drafted.above(end)
    assert sum(len(memory.held[sequence]) for sequence in memory.held) <= drafted.cells


def test_a_tree_takes_one_pass_and_rows_above_several_leaves_are_in_each_path() -> None:
    drafted, memory = begun(7, 16)
    grown(drafted, memory.run, [0, 1, 1, 2])
    assert memory.computed == [0, 1, 3, 0, 2]
    assert sorted(memory.held.values()) == [[], [0, 1, 3], [0, 2]]


def test_the_first_of_new_siblings_goes_on_in_the_sequence_of_their_parent() -> None:
    drafted, memory = begun(7, 16)
    grown(drafted, memory.run, [0])
    grown(drafted, memory.run, [1, 1])
    assert memory.computed == [0, 1, 2]
    grown(drafted, memory.run, [1])
    assert memory.computed == [0, 1, 2, 0, 3]


def test_a_sequence_that_no_new_row_continues_makes_room_for_another() -> None:
    drafted, memory = begun(2, 16)
    for numbers in ([0], [1, 1], [2, 2]):
        grown(drafted, memory.run, numbers)
    assert memory.computed == [0, 1, 2, 3, 4]
    assert sorted(memory.held.values()) == [[], [0, 1, 3], [0, 1, 4]]


def test_the_longest_held_part_of_a_path_is_found() -> None:
    drafted, memory = begun(7, 16)
    grown(drafted, memory.run, [0, 1, 2])
    assert drafted.holder([0, 1, 2]) == (3, 1)
    assert drafted.holder([0, 1]) == drafted.holder([]) == (0, 0)
    assert memory.held[1] == [0, 1, 2]
