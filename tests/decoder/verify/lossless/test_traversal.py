"""Traversal with scalars equals the algorithm in its paper, which updates whole rows."""

from collections.abc import Iterator

import numpy as np
import pytest

from decoder.draft.delayed_shape import DelayedTree
from decoder.verify.lossless import block, traversal
from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.rows import Row, Rows, residual
from tests.decoder.verify.lossless.enumeration import KINDS, delayed_trees, models


def by_rows(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> Iterator[tuple[int, float, Row]]:
    """Slots in post-order, each with its remaining probability and its law of the next token."""

    def visit(node: int, probability: float, *, owns: bool) -> Iterator[tuple[int, float, Row]]:
        row, seen = target_probs[node], set[int]()
        for child in tree.children[node] if owns else ():
            token = tree.tokens[child]
            yield from visit(
                child, min(1.0, probability * row[token] / draft_probs[node, token]), owns=child not in seen
            )
            seen.add(child)
            left = np.maximum(probability * row - draft_probs[node], 0)
            if left.sum() > 0:
                row, probability = left / left.sum(), left.sum() / (left.sum() + 1 - probability)
            else:
                probability = float(probability >= 1)
        yield node, probability, row

    yield from visit(0, 1.0, owns=True)


@pytest.mark.parametrize("kind", KINDS)
def test_scalars_bring_the_same_chances_and_rows(kind: str) -> None:
    shape = DelayedTree(3, 0, 2)
    pair = models(kind, shape.depth, 9)
    for tree, _ in delayed_trees(shape, pair)[::13]:
        rows = pair.rows(tree)
        expected = (each for each in by_rows(tree, *rows) if each[1] > 0)
        for stop, (node, probability, row) in zip(reachable(tree, *rows), expected, strict=False):
            assert stop.node == node
            assert stop.probability == pytest.approx(probability)
            after = residual(rows[0][node], rows[1][node], stop.removed)
            assert after == pytest.approx(row, abs=1e-9)


def reachable(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> Iterator[Stop]:
    """Stops up to the first with probability 1."""
    for stop in traversal.stops(tree, target_probs, draft_probs):
        if stop.probability > 0:
            yield stop
        if stop.probability > 1 - 1e-12:
            return


@pytest.mark.parametrize("kind", KINDS)
def test_on_one_path_it_is_block_verification(kind: str) -> None:
    shape = DelayedTree(1, 0, 3)
    pair = models(kind, shape.depth, 9)
    for tree, _ in delayed_trees(shape, pair):
        rows = pair.rows(tree)
        found, expected = (stops_of(stops(tree, *rows)) for stops in (traversal.stops, block.stops))
        assert found == pytest.approx(expected, abs=1e-12)


def stops_of(stops: list[Stop]) -> dict[int, float]:
    """Stops by node, without those of probability 0."""
    return {stop.node: stop.probability for stop in stops if stop.probability > 0}


def test_a_draw_of_chance_zero_prunes_what_is_below_it() -> None:
    tree = DrawnTree((-1, 0, 1), (-1, 0, 1), ((1,), (2,), ()))
    target_probs = np.array([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    draft_probs = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]])
    assert [stop.node for stop in traversal.stops(tree, target_probs, draft_probs)] == [0]


@pytest.mark.parametrize("probability", [1.0, 0.7, 0.3])
def test_a_token_drawn_again_has_nothing_left(probability: float) -> None:
    """That only the first of equal draws owns the subtree does not reduce acceptance."""
    luck = np.random.default_rng(3)
    for _ in range(50):
        target_probs, draft_probs = luck.dirichlet(np.ones(4), 2)
        first, second, again, once_more = traversal.split_node(
            target_probs, draft_probs, (1, 2, 1, 1), probability
        ).slots
        assert first == 1 or second == 1 or again == once_more == 0
