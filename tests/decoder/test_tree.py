"""Common queries of a draft tree."""

import random

from decoder.tree import TokenTree


def test_a_node_sees_itself_and_its_ancestors_alone() -> None:
    luck, tree = random.Random(1), TokenTree([0])
    for token in range(1, 40):
        tree.add(luck.randrange(len(tree)), token, -1.0)
    visible = tree.visible()
    assert [row.nonzero()[0].tolist() for row in visible] == [sorted(tree.ancestors(node)) for node in range(len(tree))]
