"""Drafted rows as root-to-leaf paths: parents are derived from the mask, and every new row is part of a path."""

import numpy as np
import pytest

from decoder.forward.recurrent.states import NO_PARENT, path_batch, path_to, with_parents
from decoder.tree import visibility

PARENTS = [NO_PARENT, 0, 0, 1, 1, 2, 5, 3]


def mask(parents: list[int], first: int = 0) -> np.ndarray:
    """Mask of the rows from `first` to the last."""
    return visibility([path_to(row, parents) for row in range(first, len(parents))], len(parents))


def test_parents_follow_from_the_mask_of_a_tree() -> None:
    assert with_parents([], mask(PARENTS)) == PARENTS


def test_parents_of_a_further_level_may_be_rows_of_earlier_passes() -> None:
    assert with_parents(PARENTS[:5], mask(PARENTS, 5)) == PARENTS


def test_rows_that_the_mask_leaves_out_are_visible() -> None:
    assert with_parents([NO_PARENT, 0], np.tri(2, dtype=np.bool_)) == [NO_PARENT, 0, 1, 2]


def test_rows_may_begin_several_trees() -> None:
    assert with_parents([], np.eye(3, dtype=np.bool_)) == [NO_PARENT] * 3


def test_a_mask_may_cover_committed_rows_that_are_visible() -> None:
    assert with_parents([], np.hstack([np.ones((2, 3), np.bool_), np.tri(2, dtype=np.bool_)])) == [NO_PARENT, 0]


@pytest.mark.parametrize("hidden", [(3, 1), (3, 3), (7, 0)])
def test_a_mask_without_a_row_of_a_path_is_refused(hidden: tuple[int, int]) -> None:
    visible = mask(PARENTS)
    visible[hidden] = False
    with pytest.raises(ValueError, match="rows of one path"):
        with_parents([], visible)


def test_a_mask_that_hides_committed_rows_is_refused() -> None:
    visible = np.hstack([np.zeros((1, 1), np.bool_), np.ones((1, 1), np.bool_)])
    with pytest.raises(ValueError, match="the whole text"):
        with_parents([], visible)


def test_paths_end_at_leaves_and_are_padded_at_their_end() -> None:
    batch = path_batch(PARENTS, 0)
    assert batch.paths == [[0, 1, 4], [0, 2, 5, 6], [0, 1, 3, 7]]
    assert batch.padded.tolist() == [[0, 1, 4, 4], [0, 2, 5, 6], [0, 1, 3, 7]]
    assert batch.unpadded == {(0, 2, 5, 6): 1, (0, 1, 3, 7): 2}


@pytest.mark.parametrize("first", [0, 5])
def test_every_new_row_is_at_its_place(first: int) -> None:
    batch = path_batch(PARENTS, first)
    assert batch.padded.flatten()[batch.places].tolist() == list(range(first, len(PARENTS)))


def test_paths_of_earlier_passes_are_not_computed_again() -> None:
    assert path_batch(PARENTS, 7).paths == [[0, 1, 3, 7]]
