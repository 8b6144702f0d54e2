"""Medians and ratios of values in lists; `tests/lab/test_frame.py` tests medians on data with known true values."""

from dynatui.lab.bench.samples import estimate, ratios
from dynatui.lab.frame import Median


def test_the_estimate_is_the_median_over_prompts_of_the_median_over_repeats() -> None:
    found = estimate([[1.0, 2.0, 90.0], [4.0, 5.0, None, 6.0], [7.0, 8.0, -90.0]], seed=0)
    assert found is not None
    assert found.value == 5.0


def test_a_prompt_without_values_does_not_count() -> None:
    assert estimate([[], [3.0, 3.0]], seed=0) == Median(value=3.0, low=3.0, high=3.0)
    assert estimate([], seed=0) is estimate([[], []], seed=0) is None


def test_ratios_pair_what_was_measured_side_by_side() -> None:
    assert ratios([[2.0, 16.0], [0.5, 4.0]], [[1.0, 8.0], [0.25, 2.0]]) == [[2.0, 2.0], [2.0, 2.0]]
    assert ratios([[6.0, None, 8.0]], [[2.0, 5.0, 4.0]]) == [[3.0, 2.0]]
    assert ratios([[6.0, 7.0]], [[None, 7.0]]) == [[1.0]]
    assert ratios([[1.0], []], [[2.0], [3.0]]) == [[0.5], []]
