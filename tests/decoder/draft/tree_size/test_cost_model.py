"""Costs of calls are interpolated from measured sizes and updated by measured times."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft.tree_size.cost_model import CLIP, HIGHEST_ROWS, RESHAPED_EVERY, RowCostCurve

MEASURED = {1: 1.0, 2: 1.1, 4: 1.3, 8: 1.7}


def test_measured_sizes_cost_what_was_measured() -> None:
    curve = RowCostCurve(MEASURED)
    assert [curve.seconds(rows) for rows in MEASURED] == pytest.approx(list(MEASURED.values()))


def test_between_sizes_the_cost_lies_on_a_line_and_beyond_them_on_the_last() -> None:
    curve = RowCostCurve(MEASURED)
    assert (curve.seconds(3), curve.seconds(6), curve.seconds(12)) == pytest.approx((1.2, 1.5, 2.1))


def test_a_single_size_is_taken_to_cost_twice_for_twice_the_rows() -> None:
    assert RowCostCurve({2: 1.0}).seconds(6) == pytest.approx(3.0)


def test_no_call_is_expected_to_be_quicker_than_a_smaller_one_beyond_what_was_measured() -> None:
    assert RowCostCurve({1: 1.0, 2: 0.9}).seconds(40) == pytest.approx(0.9)


def test_beyond_the_rows_of_a_round_the_cost_goes_on_along_the_last_line() -> None:
    curve = RowCostCurve({1: 1.0, HIGHEST_ROWS: 33.0})
    assert curve.seconds(10 * HIGHEST_ROWS) == pytest.approx(1.0 + 0.5 * (10 * HIGHEST_ROWS - 1))


def test_all_sizes_by_rows_begin_with_no_rows_that_cost_nothing() -> None:
    curve = RowCostCurve(MEASURED)
    assert curve.by_rows()[0] == 0
    assert curve.by_rows()[1:] == [curve.seconds(rows) for rows in range(1, HIGHEST_ROWS + 1)]


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
    assert curve.seconds(1) == pytest.approx(1.0, rel=0.1)
    assert curve.seconds(8) == pytest.approx(3.4, rel=0.1)


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
