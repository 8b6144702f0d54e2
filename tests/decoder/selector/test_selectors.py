"""Actions, features and times of selectors, and the selectors that come with dynatui."""

import math

import numpy as np
import pytest
import torch

from decoder import RunConfig, decode, load_pair
from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.engine import Engine
from decoder.events import Round
from decoder.methods.delayed import Delayed
from decoder.sampling.settings import Sampling
from decoder.selector import latency
from decoder.selector.actions import ACTIONS, LONGEST, MOST_NODES, ONE_PATH, number
from decoder.selector.chooser import SHIPPED, load
from decoder.selector.latency import between_passes, counts, passes
from decoder.selector.policy import LEAST, SCALARS, TIMES, Root, scalars
from decoder.selector.stored import fingerprint, read_info

COSTS = Costs(
    plain=RowCostCurve({1: 1.0}),
    catch_up=RowCostCurve({1: 10.0, 2: 20.0}),
    draft=RowCostCurve({1: 100.0, 4: 400.0}),
    verify=RowCostCurve({1: 1000.0, 65: 65000.0}),
    host=RowCostCurve({1: 1.0}),
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


P, Q, NOW = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25]), torch.tensor([1.0, 0.0, 0.0])
ROOT = Root(P, Q, NOW, (), 64, Sampling(0.7, top_p=0.9))


def test_scalars_are_those_of_the_paper() -> None:
    found = dict(zip(SCALARS, scalars(ROOT, 1e-3, 1e-2).tolist(), strict=True))
    backward = 0.25 * math.log(0.25 / 0.5) + 0.25 * math.log(0.25 / LEAST)
    assert list(found.values()) == pytest.approx(
        [
            math.log(2),
            1.5 * math.log(2),
            0.0,
            0.5 * math.log(2),
            backward,
            0.5,
            math.log(64),
            0.7,
            0.9,
            math.log(1e-3),
            math.log(1e-2),
        ],
        abs=1e-5,
    )


def test_only_the_last_scalars_depend_on_the_machine() -> None:
    slow, fast = scalars(ROOT, 1.0, 2.0), scalars(ROOT, 1e-4, 1e-3)
    assert [place for place in range(len(SCALARS)) if slow[place] != fast[place]] == list(range(len(SCALARS)))[TIMES]


def test_zeros_of_a_truncated_row_stay_finite() -> None:
    one = torch.tensor([0.0, 0.0, 1.0])
    assert scalars(Root(NOW, one, one, (), 1, Sampling(0.0)), 0.0, 0.0).isfinite().all()


MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_pair(dtype="float32", device="cpu")


def test_they_fit_the_embedded_pair_and_are_small(engine: Engine) -> None:
    files = list(SHIPPED.glob("*.safetensors"))
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    assert {read_info(file).pair for file in files} == {fingerprint(engine.pair.observed())}
    assert set(load("", engine.pair.observed())) == {"specinfer", "traversal"}


@pytest.mark.parametrize("verifier", ["specinfer", "traversal"])
def test_their_choices_differ_from_round_to_round(engine: Engine, verifier: str) -> None:
    run = RunConfig(("delayed",), 48, temperature=0.6, delayed=Delayed(verifier, "selector"))
    events = decode(engine, "The old man put down his lantern and looked at the boy.", run)
    rounds = [event for event in events if isinstance(event, Round)]
    assert len({max(depths(event.parents)) for event in rounds[1:]}) > 1


def depths(parents: list[int]) -> list[int]:
    found = [0]
    for parent in parents[1:]:
        found.append(found[parent] + 1)
    return found
