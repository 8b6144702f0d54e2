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
    while (decision := decided(found, MOST)) == "go on":
        found.append(random.gauss(math.log(mean), noise))
    return decision, len(found)


@pytest.mark.parametrize(
    ("ratios", "most", "decision"),
    [
        pytest.param([], MOST, "go on", id="no text"),
        pytest.param([0.2], MOST, "go on", id="one slow text"),
        pytest.param([5.0], MOST, "go on", id="one fast text"),
        pytest.param([0.7, 0.9], MOST, "hopeless", id="far below on two texts"),
        pytest.param([0.95, 0.95], MOST, "go on", id="a little below on two texts"),
        pytest.param([0.95, 0.96, 0.95], MOST, "hopeless", id="an interval below one"),
        pytest.param([0.95, 1.1, 0.95], MOST, "go on", id="an interval around one"),
        pytest.param(([1.2, 1.21] * ENOUGH)[: ENOUGH - 1], MOST, "go on", id="ahead on few texts"),
        pytest.param(([1.2, 1.21] * ENOUGH)[:ENOUGH], MOST, "better", id="ahead on enough texts"),
        pytest.param([1.2, 0.8] * 3, MOST, "not better", id="not ahead on enough texts"),
        pytest.param([1.3], 1, "not better", id="no text left"),
    ],
)
def test_a_race_goes_on_until_it_is_decided(ratios: list[float], most: int, decision: Decision) -> None:
    assert decided(logs(*ratios), most) == decision


def test_whoever_is_ahead_by_noise_does_not_win() -> None:
    wide = logs(*[1.5, 0.7] * (MOST // 2))
    assert decided(wide[:ENOUGH], MOST) == "go on"
    assert decided(wide, MOST) == "not better"


def test_an_equal_candidate_seldom_wins_and_a_better_one_mostly() -> None:
    equal = [raced(1.0, 0.08, seed)[0] for seed in range(200)]
    better = [raced(1.1, 0.08, seed)[0] for seed in range(200)]
    assert equal.count("better") < 30
    assert better.count("better") > 180


def test_a_slow_candidate_takes_few_texts() -> None:
    ends = [raced(0.8, 0.08, seed) for seed in range(50)]
    assert {decision for decision, _ in ends} == {"hopeless"}
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
