"""Common queries of a draft tree, and what a sampled tree holds: rows as drawn, draw order and multiplicity. That a
verifier needs nothing else is tested with the verifiers.
"""

import random

import pytest
import torch

from decoder.tree import Draws, TokenTree


def test_a_node_sees_itself_and_its_ancestors_alone() -> None:
    luck, tree = random.Random(1), TokenTree([0])
    for token in range(1, 40):
        tree.add(luck.randrange(len(tree)), token, -1.0)
    visible = tree.visible()
    assert [row.nonzero()[0].tolist() for row in visible] == [sorted(tree.ancestors(node)) for node in range(len(tree))]


def drawn_beside_grown() -> tuple[TokenTree, dict[int, Draws]]:
    """A root with its two best children; below the second, one token drawn twice and another drawn once."""
    tree = TokenTree([9])
    tree.grow(0, [1, 2], [-0.5, -1.5])
    assert tree.draws is None
    assert tree.subtree(tree.most_probable(1)).draws is None
    assert tree.draw(2, [7, 5, 7], [-1.0, -2.0, -1.0], torch.tensor([0.0] * 8)) == [3, 4, 3]
    assert tree.draws
    return tree, tree.draws


def test_a_token_that_is_drawn_again_keeps_its_node() -> None:
    tree, draws = drawn_beside_grown()
    assert tree.draw(2, [5, 6], [-2.0, -3.0], torch.tensor([0.0] * 8)) == [4, 5]
    assert tree.tokens == [9, 1, 2, 7, 5, 6]
    assert draws[2].children == [3, 4, 3, 4, 5]
    assert tree.parents == [-1, 0, 0, 2, 2, 2]
    assert tree.depths == [0, 1, 1, 2, 2, 2]
    assert tree.path_logprobs == [0.0, -0.5, -1.5, -2.5, -3.5, -4.5]


def test_draws_are_renumbered_with_their_nodes() -> None:
    tree, draws = drawn_beside_grown()
    found = tree.subtree([0, 2, 3, 4])
    assert found.draws is not None
    assert (found.tokens, found.draws[1].children) == ([9, 2, 7, 5], [2, 3, 2])
    assert found.draws[1].row is draws[2].row
    assert (found.parents, found.depths, found.logprobs) == ([-1, 0, 1, 1], [0, 1, 2, 2], [0.0, -1.5, -1.0, -2.0])
    assert tree.most_probable(3) == [0, 1, 2, 3]


@pytest.mark.parametrize("kept", [[0, 2, 3], [0, 1]])
def test_a_token_that_was_drawn_cannot_be_dropped(kept: list[int]) -> None:
    with pytest.raises(ValueError, match="must stay in the tree"):
        drawn_beside_grown()[0].subtree(kept)
