"""Costs of calls: measured after a pass of about their own size, interpolated, and updated by measured times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft.tree_size.cost_model import CLIP, HIGHEST_ROWS, RESHAPED_EVERY, RowCostCurve
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.models.pair import Pair
from tests.decoder.makers import TinyModels

MEASURED = {1: 1.0, 2: 1.1, 4: 1.3, 8: 1.7}


@pytest.mark.parametrize(
    ("measured", "rows", "seconds"),
    [
        *((MEASURED, rows, seconds) for rows, seconds in MEASURED.items()),
        *((MEASURED, rows, seconds) for rows, seconds in ((3, 1.2), (6, 1.5), (12, 2.1))),
        pytest.param({2: 1.0}, 6, 3.0, id="a single size costs twice for twice the rows"),
        pytest.param({1: 1.0, 2: 0.9}, 40, 0.9, id="no call is quicker than a smaller one beyond what was measured"),
        pytest.param(
            {1: 1.0, HIGHEST_ROWS: 33.0}, 10 * HIGHEST_ROWS, 1 + 0.5 * (10 * HIGHEST_ROWS - 1),
            id="beyond the rows of a round along the last line",
        ),
    ],
)  # fmt: skip
def test_sizes_cost_as_measured_and_others_lie_on_lines(measured: dict[int, float], rows: int, seconds: float) -> None:
    assert RowCostCurve(measured).seconds(rows) == pytest.approx(seconds)


def test_all_sizes_by_rows_begin_with_no_rows_that_cost_nothing() -> None:
    curve = RowCostCurve(MEASURED)
    assert curve.by_rows() == [0, *(curve.seconds(rows) for rows in range(1, HIGHEST_ROWS + 1))]


def test_the_whole_curve_follows_a_machine_that_slows_down() -> None:
    curve = RowCostCurve(MEASURED)
    for _ in range(60):
        curve.learn([4], 1.5 * 1.3)
    assert curve.seconds(4) == pytest.approx(1.5 * 1.3, rel=0.01)
    assert curve.seconds(1) == pytest.approx(1.5, rel=0.1)


def test_the_shape_follows_what_each_size_takes() -> None:
    curve = RowCostCurve(MEASURED)
    for _ in range(600):
        curve.learn([1], 1.0)
        curve.learn([8], 3.4)
    assert (curve.seconds(1), curve.seconds(8)) == pytest.approx((1.0, 3.4), rel=0.1)


def test_the_neighbours_of_a_size_follow_it_half_as_far() -> None:
    curve = RowCostCurve({1: 1.0, 8: 1.0, 64: 1.0}, pace_step=0.0)
    for _ in range(RESHAPED_EVERY):
        curve.learn([1], 100.0)
    assert math.log(curve.seconds(8)) == pytest.approx(math.log(curve.seconds(1)) / 2)
    assert curve.seconds(64) == pytest.approx(1.0)


def test_several_calls_are_learnt_from_their_time_together() -> None:
    curve = RowCostCurve(MEASURED)
    for _ in range(100):
        curve.learn([1, 2, 4], 6.8)
    assert sum(map(curve.seconds, (1, 2, 4))) == pytest.approx(6.8, rel=0.01)


def test_one_odd_call_moves_little() -> None:
    curve = RowCostCurve(MEASURED)
    curve.learn([1], 1000.0)
    assert curve.seconds(1) < CLIP**0.11
    curve.learn([1], 0.0)
    assert curve.seconds(1) > 1


@given(calls=st.lists(st.tuples(st.lists(st.integers(1, 200), max_size=5), st.floats(0, 1e6)), max_size=100))
def test_costs_stay_above_zero_whatever_calls_took(calls: list[tuple[list[int], float]]) -> None:
    curve = RowCostCurve(MEASURED)
    for rows, seconds in calls:
        curve.learn(rows, seconds)
    assert all(seconds > 0 for seconds in curve.by_rows()[1:])


# Measurement


ROW_S, COLD_S = 1e-6, 1e-3


@dataclass
class Machine:
    """A clock, and a CPU whose caches hold no weights after a much larger pass: the next three take longer."""

    time_s: float = 0.0
    latest_rows: int = 1
    cold_passes: int = 0

    def now(self) -> float:
        return self.time_s

    def compute(self, rows: int) -> torch.Tensor:
        self.cold_passes = 3 if self.latest_rows >= 4 * rows else max(0, self.cold_passes - 1)
        self.time_s += ROW_S * rows + COLD_S * (self.cold_passes > 0)
        self.latest_rows = rows
        return torch.zeros(rows, 2)


class Cache:
    length = 0

    def assume(self, length: int) -> None:
        self.length = length


@dataclass
class Model:
    """A model without weights on the machine."""

    machine: Machine
    context: int = 4096

    def new_cache(self, _capacity: int) -> Cache:
        return Cache()

    def read(self, _cache: Cache, tokens: Sequence[int]) -> torch.Tensor:
        return self.machine.compute(len(tokens))[-1]

    def forward(self, _cache: Cache, tokens: Sequence[int], *_: object) -> torch.Tensor:
        return self.machine.compute(len(tokens))


def test_no_size_is_measured_right_after_a_much_larger_one(tiny_models: TinyModels) -> None:
    machine = Machine()
    model: Any = Model(machine)
    pair: Pair = replace(tiny_models.loaded(tiny_models.pair("neox"), "float32").pair, target=model, draft=model)
    costs = measure_costs(pair, 100, machine)
    assert costs.plain_s() < COLD_S / 2
    for rows in range(1, 14):
        for curve in (costs.catch_up, costs.draft, costs.verify):
            assert curve.seconds(rows) < COLD_S / 2
