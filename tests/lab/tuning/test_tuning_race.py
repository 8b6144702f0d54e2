"""The point at which a candidate has lost or won, and races that stay undecided."""

import math
from random import Random

import pytest

from dynatui.lab.tuning.search import ENOUGH, Decision, decided, ratio

MOST = 16


def logs(*ratios: float) -> list[float]:
    return [math.log(each) for each in ratios]


def raced(mean: float, noise: float, seed: int) -> tuple[Decision, int]:
    """Result of a race with random ratios of this mean and noise, and its number of texts."""
    random, found = Random(seed), list[float]()
    while (decision := decided(found, MOST)) is Decision.GO_ON:
        found.append(random.gauss(math.log(mean), noise))
    return decision, len(found)


def test_one_text_decides_nothing() -> None:
    assert decided([], MOST) is Decision.GO_ON
    assert decided(logs(0.2), MOST) is Decision.GO_ON
    assert decided(logs(5.0), MOST) is Decision.GO_ON


def test_far_below_two_texts_suffice() -> None:
    assert decided(logs(0.7, 0.9), MOST) is Decision.HOPELESS
    assert decided(logs(0.95, 0.95), MOST) is Decision.GO_ON


def test_an_interval_below_one_suffices() -> None:
    assert decided(logs(0.95, 0.96, 0.95), MOST) is Decision.HOPELESS
    assert decided(logs(0.95, 1.1, 0.95), MOST) is Decision.GO_ON


def test_whoever_is_ahead_must_be_so_on_enough_texts() -> None:
    ahead = logs(*[1.2, 1.21] * ENOUGH)
    assert decided(ahead[: ENOUGH - 1], MOST) is Decision.GO_ON
    assert decided(ahead[:ENOUGH], MOST) is Decision.BETTER


def test_whoever_is_ahead_by_noise_does_not_win() -> None:
    wide = logs(*[1.5, 0.7] * (MOST // 2))
    assert decided(wide[:ENOUGH], MOST) is Decision.GO_ON
    assert decided(wide, MOST) is Decision.NOT_BETTER


def test_whoever_is_not_ahead_after_enough_texts_is_given_up() -> None:
    assert decided(logs(1.2, 0.8, 1.2, 0.8, 1.2, 0.8), MOST) is Decision.NOT_BETTER


def test_nobody_is_measured_for_longer_than_said() -> None:
    assert decided(logs(1.3), 1) is Decision.NOT_BETTER


def test_machines_that_slow_down_change_nothing() -> None:
    """Both slow down equally from text to text, so their ratio is constant."""
    candidate, leader = ([speed / (1 + text) for text in range(ENOUGH)] for speed in (110.0, 100.0))
    assert decided([math.log(a / b) for a, b in zip(candidate, leader, strict=True)], MOST) is Decision.BETTER


def test_an_equal_candidate_seldom_wins_and_a_better_one_mostly() -> None:
    equal = [raced(1.0, 0.08, seed)[0] for seed in range(200)]
    better = [raced(1.1, 0.08, seed)[0] for seed in range(200)]
    assert equal.count(Decision.BETTER) < 30
    assert better.count(Decision.BETTER) > 180


def test_a_slow_candidate_takes_few_texts() -> None:
    ends = [raced(0.8, 0.08, seed) for seed in range(50)]
    assert {decision for decision, _ in ends} == {Decision.HOPELESS}
    assert sum(texts for _, texts in ends) / len(ends) < 3


def test_a_ratio_is_a_geometric_mean_with_an_interval() -> None:
    found = ratio(logs(2.0, 0.5, 1.0))
    assert found is not None
    assert found.value == pytest.approx(1)
    assert found.low is not None
    assert found.high == pytest.approx(1 / found.low)
    # Student's t of two degrees of freedom is 4.303 at 97.5 %; the standard error here is log(2) / sqrt(3).
    assert found.high == pytest.approx(math.exp(4.303 * math.log(2) / math.sqrt(3)), rel=1e-3)


def test_one_ratio_has_no_interval_and_none_is_none() -> None:
    alone = ratio(logs(1.5))
    assert alone is not None
    assert alone.value == pytest.approx(1.5)
    assert (alone.low, alone.high) == (None, None)
    assert ratio([]) is None
