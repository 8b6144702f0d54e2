"""Delayed trees: their shapes, and the record of their draws."""

from collections.abc import Sequence

import pytest
import torch

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes
from decoder.draft.drawn_drafter import draw_tree
from decoder.errors import ConfigError
from decoder.tree import TokenTree
from decoder.verify.lossless.random_generator import PhiloxGenerator

ROW = torch.tensor([0.1, 0.6, 0.3])


class Asked:
    """A draft that records the nodes whose rows were requested."""

    def __init__(self) -> None:
        self.levels: list[Sequence[int]] = []

    def __call__(self, tree: TokenTree, nodes: Sequence[int]) -> torch.Tensor:
        assert max(nodes) < len(tree)
        self.levels.append(nodes)
        return ROW.expand(len(nodes), -1)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 1, 1), "K is 0; give 1 or more"),
        ((1, -1, 1), "L1 is -1; give 0"),
        ((1, 1, -2), "L2 is -2; give 0"),
        ((1 << 20, 1, 1), "K is 1048576; give 4096 or less"),
    ],
)
def test_an_impossible_shape_is_refused(shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DelayedTree(*shape)


@pytest.mark.parametrize(
    ("shape", "canonical"),
    [
        ((4, 3, 0), (1, 0, 3)),
        ((1, 2, 3), (1, 0, 5)),
        ((1, 0, 5), (1, 0, 5)),
        ((2, 1, 1), (2, 1, 1)),
        ((3, 0, 0), (1, 0, 0)),
    ],
)
def test_shapes_that_draw_the_same_trees_have_one_form(
    shape: tuple[int, int, int], canonical: tuple[int, int, int]
) -> None:
    assert DelayedTree(*shape).canonical() == DelayedTree(*canonical)


def test_of_324_actions_233_differ() -> None:
    assert len(distinct_shapes(4, 8, 8)) == 233


def test_a_shape_knows_its_depth_and_its_nodes() -> None:
    assert (DelayedTree(3, 0, 5).depth, DelayedTree(3, 2, 5).most_nodes) == (5, 17)


@pytest.mark.parametrize("shape", [DelayedTree(3, 2, 3), DelayedTree(1, 4, 0), DelayedTree(4, 0, 2)], ids=str)
def test_every_rollout_draws_to_the_end(shape: DelayedTree) -> None:
    tree = draw_tree(shape, 7, Asked(), PhiloxGenerator(1))
    assert tree.draws is not None
    assert tree.tokens[0] == 7
    counts = [0] * (shape.depth + 1)
    for node, draws in tree.draws.items():
        counts[tree.depths[node] + 1] += len(draws.children)
    assert counts[1:] == [1] * shape.l1 + [shape.k] * shape.l2


def test_agreeing_rollouts_share_a_node_which_is_asked_for_once() -> None:
    asked = Asked()
    tree = draw_tree(DelayedTree(8, 1, 2), 7, asked, PhiloxGenerator(1))
    assert len(asked.levels) == 3
    assert all(len(set(level)) == len(level) for level in asked.levels)
    assert len(tree) <= 1 + 1 + 3 + 9
    assert [len(level) for level in asked.levels] == [tree.depths.count(depth) for depth in range(3)]


def test_nodes_are_numbered_level_by_level_and_parents_in_order() -> None:
    tree = draw_tree(DelayedTree(8, 1, 3), 7, Asked(), PhiloxGenerator(1))
    assert tree.parents == sorted(tree.parents)
    assert tree.depths == sorted(tree.depths)


def test_a_node_is_drawn_from_as_often_as_it_was_drawn() -> None:
    tree = draw_tree(DelayedTree(8, 0, 2), 7, Asked(), PhiloxGenerator(1))
    assert tree.draws is not None
    for child in set(tree.draws[0].children):
        assert len(tree.draws[child].children) == tree.draws[0].children.count(child)


def test_rows_are_kept_as_they_were_drawn_from() -> None:
    tree = draw_tree(DelayedTree(2, 0, 2), 7, Asked(), PhiloxGenerator(1))
    assert tree.draws is not None
    assert all(torch.equal(draws.row, ROW) for draws in tree.draws.values())
    assert tree.logprobs[1:] == pytest.approx([float(ROW[token].log()) for token in tree.tokens[1:]])


def test_no_draws_make_a_bare_root() -> None:
    asked = Asked()
    tree = draw_tree(DelayedTree(1, 0, 0), 7, asked, PhiloxGenerator(1))
    assert (tree.tokens, tree.draws, asked.levels) == ([7], {}, [])


def test_a_seed_draws_one_tree() -> None:
    trees = [draw_tree(DelayedTree(4, 1, 3), 7, Asked(), PhiloxGenerator(seed)) for seed in (1, 1, 2)]
    assert trees[0].tokens == trees[1].tokens != trees[2].tokens


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    tree = draw_tree(DelayedTree(50, 0, 1), 7, lambda *_: torch.tensor([[0.5, 0.0, 0.5]]), PhiloxGenerator(3))
    assert set(tree.tokens[1:]) == {0, 2}
