"""Statistics of made frames with known true values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from decoder.analysis.interval import Interval
from dynatui.lab.frame import (
    Median,
    by_prompt,
    estimate,
    frame,
    mean,
    means,
    median,
    quotients,
    series,
    spread_quotient,
)

CASES = 120


def texts(*groups: Sequence[float | None], lane: str = "a") -> pd.DataFrame:
    """A frame of one lane: a group of values for each prompt, a value for each repeat."""
    return frame(
        [
            {"lane": lane, "prompt": prompt, "repeat": repeat, "figure": value}
            for prompt, group in enumerate(groups)
            for repeat, value in enumerate(group)
        ],
        ["figure"],
    )


def made(*groups: Sequence[float | None]) -> pd.Series:
    return series(texts(*groups), "figure")


def ends(found: Interval | None) -> tuple[float, float]:
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def test_a_mean_is_one_over_prompts_of_means_over_repeats_and_what_is_unknown_is_left_out() -> None:
    assert made([None, 2.0], [None]).to_dict() == {(0, 1): 2.0}
    assert mean(made([None]), 0) is median(made([None]), 0) is None
    found: Any = mean(made([1.0, 3.0], [8.0, None]), 0)
    assert (found.value, found.std, *ends(found)) == (5.0, 3.0, 2.0, 8.0)


def test_equal_prompts_have_an_interval_without_width_and_one_prompt_has_none() -> None:
    assert mean(made([3.0], [3.0]), 0) == Interval(value=3.0, std=0.0, low=3.0, high=3.0)
    assert mean(made([3.0]), 0) == Interval(value=3.0, std=0.0, low=None, high=None)
    assert median(made([3.0]), 0) == Median(value=3.0, low=None, high=None)


def test_means_are_those_of_each_group_in_any_order_of_rows() -> None:
    first = texts([1.0], [3.0], [7.0])
    both = pd.concat([first, texts([None], [5.0], lane="b")]).assign(length=8, weight=2.0)
    found = means(both, ["lane", "length"], ["figure", "weight"], 0, {"ratio": ("figure", "weight")})
    assert list(found) == [("a", 8), ("b", 8)]
    assert found["a", 8]["figure"] == mean(made([1.0], [3.0], [7.0]), 0)
    assert {name: each.value for name, each in found["b", 8].items()} == {"figure": 5.0, "weight": 2.0, "ratio": 2.5}
    assert (
        means(both.iloc[[2, 0, 1]], ["lane", "length"], ["figure"], 0, {})["a", 8]["figure"] == found["a", 8]["figure"]
    )


def test_quotients_pair_what_was_measured_on_the_same_text_before_a_mean_is_taken() -> None:
    rows = pd.concat([texts([6.0, None], [8.0], [2.0, 9.0]), texts([2.0, 5.0], [0.0], [1.0, 3.0], [3.0], lane="b")])
    found = quotients(rows, "a", "b", "figure")
    assert found.to_dict() == {(0, 0): 3.0, (2, 0): 2.0, (2, 1): 3.0}
    assert by_prompt(found).to_dict() == {0: 3.0, 2: 2.5}
    assert quotients(rows, "a", "c", "figure").empty


def test_a_quotient_of_spreads_needs_two_prompts_with_a_spread() -> None:
    wide, narrow = made([1.0], [5.0], [9.0]), made([1.0], [2.0], [3.0], [4.0])
    found: Any = spread_quotient(wide, narrow, 0)
    assert found.value == pytest.approx(4.0)
    assert spread_quotient(wide, made([1.0], [1.0], [1.0]), 0) is None
    assert spread_quotient(made([1.0]), narrow, 0) is None


def test_a_median_is_one_over_prompts_of_medians_over_repeats_which_alone_judge_one_prompt() -> None:
    groups = [[1.0, 2.0, 90.0], [4.0, 5.0, 6.0], [7.0, 8.0, -90.0]]
    found: Any = median(made(*groups), 0)
    assert found.value == 5.0
    assert median(made([1.0, 2.0, 3.0]), 0) == Median(value=2.0, low=1.0, high=3.0)
    assert estimate(groups, 0) == found
    assert estimate([[], [3.0, 3.0]], 0) == Median(value=3.0, low=3.0, high=3.0)
    assert estimate([], 0) is estimate([[], []], 0) is None


def test_the_same_seed_draws_the_same_interval_and_another_one_a_like_one() -> None:
    these = made(*np.random.default_rng(1).lognormal(size=(10, 2)).tolist())
    first, again, other = (ends(median(these, seed)) for seed in (5, 5, 6))
    assert first == again
    assert other == pytest.approx(first, rel=0.3)


@pytest.mark.parametrize("of", [mean, median])
def test_an_interval_holds_the_true_value_about_as_often_as_it_says(of: object) -> None:
    """Prompts differ by a random factor, repeats by a smaller one; the true mean and median are 1.5."""
    assert callable(of)
    random = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        prompts = 1.5 * (1 + random.normal(0, 0.3, size=(12, 1)))
        low, high = ends(of(made(*(prompts * (1 + random.normal(0, 0.05, size=(12, 2)))).tolist()), 0))
        held += low <= 1.5 <= high
    assert 0.85 <= held / 200 <= 0.99


def test_a_spread_is_taken_anew_in_every_sample() -> None:
    """With one prompt far from all others, the spread depends on that prompt; samples without it have almost none."""
    far = made(*([100.0 if number == 0 else number % 3] for number in range(30)))
    near = made(*([float((number * 7) % 5)] for number in range(30)))
    found: Any = spread_quotient(far, near, 0)
    assert ends(found)[0] < 1 < found.value


@pytest.mark.parametrize("prompts", [5, 20])
def test_the_interval_of_a_spread_holds_the_truth_in_95_of_100_cases(prompts: int) -> None:
    """An interval that holds the truth in 85 of 100 cases fails with a probability of more than 99 %."""
    draw = np.random.default_rng(1)
    held = 0
    for _ in range(CASES):
        over, under = (made(*([value] for value in draw.normal(size=prompts).tolist())) for _ in "ab")
        low, high = ends(spread_quotient(over, under, 0, coverage=0.99))
        held += low <= 1 <= high
    assert held >= 0.94 * CASES
