"""The table of shapes, and the expected times of their rounds."""

import numpy as np
import pytest
import torch

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs, Curve
from decoder.sampling.settings import Sampling
from decoder.selector import latency
from decoder.selector.actions import ACTIONS, LONGEST, MOST_NODES, ONE_PATH, number
from decoder.selector.latency import between_passes, counts, passes

COSTS = Costs(
    plain=Curve({1: 1.0}),
    catch_up=Curve({1: 10.0, 2: 20.0}),
    draft=Curve({1: 100.0, 4: 400.0}),
    verify=Curve({1: 1000.0, 65: 65000.0}),
    host=Curve({1: 1.0}),
)
"""Costs with one unit of time per row, and a distinct decimal place for each kind of pass."""


def test_there_are_233_distinct_actions_plain_decoding_among_them() -> None:
    assert len(ACTIONS) == len(set(ACTIONS)) == 233
    assert ACTIONS[number(DelayedTree(3, 0, 0))] == DelayedTree(1, 0, 0)


def test_shapes_that_draw_the_same_trees_are_one_action() -> None:
    assert number(DelayedTree(1, 3, 4)) == number(DelayedTree(1, 0, 7)) == number(DelayedTree(4, 7, 0))
    assert number(DelayedTree(2, 3, 4)) != number(DelayedTree(2, 4, 3))


def test_bounds_of_the_actions_are_reached() -> None:
    assert max(action.depth for action in ACTIONS) == LONGEST
    assert max(action.most_nodes for action in ACTIONS) == MOST_NODES
    assert sum(ONE_PATH) == LONGEST + 1


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        ((1, 0, 0), 20 + 1000),
        ((1, 0, 1), 20 + 2000),
        ((1, 0, 3), 20 + 2 * 100 + 4000),
        ((3, 0, 1), 20 + 4000),
        ((3, 0, 3), 20 + 2 * 300 + 10000),
        ((2, 2, 2), 20 + 100 + 100 + 200 + 7000),
        ((4, 8, 8), 20 + 8 * 100 + 7 * 400 + 41000),
    ],
)
def test_a_round_takes_its_passes_by_their_rows(shape: tuple[int, int, int], seconds: float) -> None:
    assert (counts() @ passes(COSTS))[number(DelayedTree(*shape))] == pytest.approx(seconds)


def test_what_lies_between_passes_counts_by_round_level_and_node() -> None:
    parts = np.zeros(latency.SIZE)
    parts[latency.ROUND], parts[latency.LEVEL], parts[latency.NODE] = 1000, 100, 1
    assert (counts() @ parts)[number(DelayedTree(3, 2, 4))] == 1000 + 6 * 100 + 14


def test_each_round_reads_verifies_and_draws_level_by_level() -> None:
    rows = counts()
    assert (rows[:, latency.READ] == 1).all()
    assert (rows[:, latency.VERIFY].sum(1) == 1).all()
    assert rows[:, latency.DRAFT].sum(1).tolist() == [max(0, action.depth - 1) for action in ACTIONS]


@pytest.mark.parametrize("verifier", ["specinfer", "block"])
def test_the_time_between_passes_is_measured(verifier: str) -> None:
    found = between_passes(16, verifier, Sampling(1.0), torch.device("cpu"))
    assert min(found) >= 0
    assert 0 < sum(found) < 1
