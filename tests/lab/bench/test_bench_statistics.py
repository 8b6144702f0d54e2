"""Medians and intervals of numbers with known true values."""

import numpy as np
import pytest

from dynatui.lab.bench.statistics import Median, estimate, ratios


def test_the_estimate_is_the_median_over_prompts_of_the_median_over_repeats() -> None:
    found = estimate([[1.0, 2.0, 90.0], [4.0, 5.0, 6.0], [7.0, 8.0, -90.0]], seed=0)
    assert found is not None
    assert found.value == 5.0


def test_nothing_measured_is_no_estimate() -> None:
    assert estimate([], seed=0) is None
    assert estimate([[], []], seed=0) is None


def test_a_prompt_without_values_does_not_count() -> None:
    assert estimate([[], [3.0, 3.0]], seed=0) == Median(value=3.0, low=3.0, high=3.0)


def test_a_single_value_tells_nothing_of_its_uncertainty() -> None:
    assert estimate([[3.0]], seed=0) == Median(value=3.0, low=None, high=None)


def test_one_prompt_is_judged_by_its_repeats() -> None:
    found = estimate([[1.0, 2.0, 3.0]], seed=0)
    assert found == Median(value=2.0, low=1.0, high=3.0)


def test_the_same_seed_draws_the_same_interval_and_another_one_a_like_one() -> None:
    groups = np.random.default_rng(1).lognormal(size=(10, 2)).tolist()
    first, again, other = (estimate(groups, seed) for seed in (5, 5, 6))
    assert first == again
    assert first is not None
    assert other is not None
    assert other.low == pytest.approx(first.low, rel=0.3)
    assert other.high == pytest.approx(first.high, rel=0.3)


def test_the_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    """Prompts differ by a random factor, repeats by a smaller one; the true median ratio is 1.5."""
    random = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        prompts = 1.5 * random.lognormal(0, 0.3, size=(12, 1))
        found = estimate((prompts * random.lognormal(0, 0.05, size=(12, 2))).tolist(), seed=0)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.5 <= found.high
    assert 0.90 <= held / 200 <= 0.99


def test_more_prompts_narrow_the_interval() -> None:
    values = np.random.default_rng(3).lognormal(0, 0.3, size=(80, 1)).tolist()
    few, many = estimate(values[:10], seed=0), estimate(values, seed=0)
    assert few is not None
    assert many is not None
    assert few.low is not None
    assert many.low is not None
    assert few.high is not None
    assert many.high is not None
    assert many.high - many.low < (few.high - few.low) / 2


def test_ratios_pair_what_was_measured_side_by_side() -> None:
    drifting = [[1.0, 8.0], [0.25, 2.0]]
    assert ratios([[2 * value for value in group] for group in drifting], drifting) == [[2.0, 2.0], [2.0, 2.0]]


def test_a_turn_that_only_one_side_could_measure_shifts_no_other() -> None:
    assert ratios([[6.0, None, 8.0]], [[2.0, 5.0, 4.0]]) == [[3.0, 2.0]]
    assert ratios([[6.0, 7.0]], [[None, 7.0]]) == [[1.0]]


def test_a_prompt_that_only_one_side_could_measure_has_no_ratio() -> None:
    assert ratios([[1.0], []], [[2.0], [3.0]]) == [[0.5], []]
