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
Shape = tuple[int, int, int]


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
def test_an_impossible_shape_is_refused(shape: Shape, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DelayedTree(*shape)


@pytest.mark.parametrize(
    ("shape", "canonical"),
    [
        *(((4, 3, 0), (1, 0, 3)), ((1, 2, 3), (1, 0, 5)), ((1, 0, 5), (1, 0, 5))),
        *(((2, 1, 1), (2, 1, 1)), ((3, 0, 0), (1, 0, 0))),
    ],
)
def test_shapes_that_draw_the_same_trees_have_one_form(shape: Shape, canonical: Shape) -> None:
    assert DelayedTree(*shape).canonical() == DelayedTree(*canonical)


def test_a_shape_knows_its_depth_and_its_nodes() -> None:
    assert (DelayedTree(3, 0, 5).depth, DelayedTree(3, 2, 5).most_nodes) == (5, 17)
    assert len(distinct_shapes(4, 8, 8)) == 233


@pytest.mark.parametrize("shape", [(3, 2, 3), (1, 4, 0), (4, 0, 2), (8, 1, 3), (8, 0, 2), (1, 0, 0)], ids=str)
def test_every_rollout_draws_to_the_end_and_agreeing_ones_share_a_node_which_is_asked_for_once(shape: Shape) -> None:
    asked, own = Asked(), DelayedTree(*shape)
    tree = draw_tree(own, 7, asked, PhiloxGenerator(1))
    assert tree.draws is not None
    assert tree.tokens[0] == 7
    counts = [0] * (own.depth + 1)
    for node, draws in tree.draws.items():
        counts[tree.depths[node] + 1] += len(draws.children)
        assert torch.equal(draws.row, ROW), "rows are kept as they were drawn from"
        if own.l1 == 0 and node == 0:
            below = {child: tree.draws[child] for child in draws.children}
            assert all(len(each.children) == draws.children.count(child) for child, each in below.items())
    assert counts[1:] == [1] * own.l1 + [own.k] * own.l2
    assert [len(set(level)) for level in asked.levels] == [tree.depths.count(depth) for depth in range(own.depth)]
    assert tree.parents == sorted(tree.parents)
    assert tree.depths == sorted(tree.depths)
    children = list(zip(tree.parents, tree.tokens, strict=True))
    assert len(set(children)) == len(children)
    assert tree.logprobs[1:] == pytest.approx([float(ROW[token].log()) for token in tree.tokens[1:]])


def test_a_seed_draws_one_tree_without_tokens_of_probability_zero() -> None:
    trees = [draw_tree(DelayedTree(4, 1, 3), 7, Asked(), PhiloxGenerator(seed)) for seed in (1, 1, 2)]
    assert trees[0].tokens == trees[1].tokens != trees[2].tokens
    tree = draw_tree(DelayedTree(50, 0, 1), 7, lambda *_: torch.tensor([[0.5, 0.0, 0.5]]), PhiloxGenerator(3))
    assert set(tree.tokens[1:]) == {0, 2}
