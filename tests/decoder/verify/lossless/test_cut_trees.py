"""A smaller delayed tree within a drawn one: distributed as if it had been drawn alone."""

from collections import defaultdict

import pytest

from decoder.draft.delayed_shape import DelayedTree
from decoder.verify.lossless.drawn_tree import DrawnTree
from tests.decoder.verify.lossless.enumeration import delayed_trees, models

DRAWN = DelayedTree(3, 1, 2)


@pytest.mark.parametrize(("k", "depth"), [(3, 3), (2, 3), (1, 3), (3, 2), (2, 2), (1, 2), (2, 1), (1, 0)])
@pytest.mark.parametrize("kind", ["generic", "draft zeros"])
def test_its_law_is_that_of_a_tree_of_its_shape(k: int, depth: int, kind: str) -> None:
    pair = models(kind, DRAWN.depth)
    law: dict[DrawnTree, float] = defaultdict(float)
    for tree, chance in delayed_trees(DRAWN, pair):
        law[tree.cut(k, DRAWN.l1, depth)[0]] += chance
    alone = dict(delayed_trees(DelayedTree(k, DRAWN.l1, 2).up_to(depth), pair))
    assert law.keys() == alone.keys()
    assert law == pytest.approx(alone, abs=1e-12)


def test_it_tells_which_nodes_are_left() -> None:
    tree = DrawnTree((9, 5, 6, 7, 5), (-1, 0, 1, 1, 2), ((1,), (2, 3, 2), (4, 4), (), ()))
    smaller, nodes = tree.cut(1, 1, 3)
    assert nodes == [0, 1, 2, 4]
    assert smaller == DrawnTree((9, 5, 6, 5), (-1, 0, 1, 2), ((1,), (2,), (3,), ()))
