"""Expected accepted tokens of trees of planned sizes, learnt from rounds."""

import random
from itertools import pairwise

import pytest

from decoder.draft.tree_size.plan import SIZES, PathProbabilities, TreePlan, ranks


def test_what_a_smaller_size_would_have_brought_is_learnt_from_a_larger_one() -> None:
    paths = PathProbabilities()
    for _ in range(200):
        paths.learn(TreePlan(4, 64), [1, 5, 9])
    expected = paths.expected(4)
    sizes = dict(zip(SIZES, expected[4], strict=True))
    assert sizes[8] == pytest.approx(2, abs=0.2)
    assert sizes[64] == pytest.approx(3, abs=0.2)
    assert [round(row[-1]) for row in expected] == [0, 1, 2, 3, 3]


def test_more_depth_and_more_nodes_never_promise_less() -> None:
    paths, luck = PathProbabilities(), random.Random(3)
    for _ in range(60):
        found = sorted(luck.sample(range(1, 40), luck.randint(0, 5)))
        paths.learn(TreePlan(luck.choice((2, 5, 9)), luck.choice(SIZES)), found)
        expected = paths.expected(12)
        assert all(low <= high for row in expected for low, high in pairwise(row))
        assert all(a <= b for above, below in pairwise(expected) for a, b in zip(above, below, strict=True))


def test_ranks_are_those_of_falling_path_probability() -> None:
    assert ranks([0.0, -1.0, -0.5, -0.5, -3.0], [2, 4]) == [1, 4]
    assert ranks([0.0, -1.0, -0.5, -0.5, -3.0], [3]) == [2]
