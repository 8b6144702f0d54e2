"""Chances follow what the target chose: a draft that thinks too much or too little of itself is put right."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.calibration import Calibration

LOGPROBS = st.lists(st.floats(-30, -1e-6) | st.just(-math.inf), min_size=1, max_size=5).map(
    lambda found: sorted(found, reverse=True)
)


def taught(
    draws: int, best: Sequence[float], truth: Sequence[float], calibration: Calibration | None = None
) -> Calibration:
    """After so many places at which the draft said `best` and the target chose by `truth`."""
    luck = random.Random(0)
    learnt = calibration or Calibration()
    for _ in range(draws):
        chosen = luck.choices(range(len(truth) + 1), [*truth, 1 - sum(truth)])[0]
        learnt.learn([math.log(q) for q in best], None if chosen == len(truth) else chosen)
    return learnt


@given(logprobs=LOGPROBS)
def test_chances_are_no_more_than_1_together_and_keep_the_draft_s_order(logprobs: list[float]) -> None:
    chances = Calibration().chances(logprobs)
    assert sum(chances) <= 1
    assert chances == sorted(chances, reverse=True)


@pytest.mark.parametrize(
    ("best", "truth"),
    [
        pytest.param((0.9, 0.05, 0.02), (0.4, 0.02, 0.01), id="a draft too sure of itself"),
        pytest.param((0.15, 0.1, 0.08), (0.67, 0.2, 0.05), id="a draft too modest"),
        pytest.param((0.5, 0.3, 0.1), (0.5, 0.3, 0.1), id="a draft that is right about itself"),
    ],
)
def test_chances_become_what_happens(best: Sequence[float], truth: Sequence[float]) -> None:
    calibration = taught(400, best, truth)
    assert calibration.chances([math.log(q) for q in best]) == pytest.approx(list(truth), abs=0.12)


def test_a_draft_that_is_always_wrong_is_found_out_within_a_few_places() -> None:
    best = (0.9, 0.05, 0.02)
    calibration = taught(8, best, (0.0, 0.0, 0.0))
    assert calibration.chances([math.log(q) for q in best])[0] < 0.5


def test_what_is_long_past_is_forgotten() -> None:
    best, good, bad = (0.6, 0.2, 0.1), (0.95, 0.03, 0.01), (0.1, 0.05, 0.05)
    calibration = taught(150, best, bad, taught(1000, best, good))
    fresh = taught(150, best, bad)
    logprobs = [math.log(q) for q in best]
    assert calibration.chances(logprobs)[0] == pytest.approx(fresh.chances(logprobs)[0], abs=0.05)


@given(places=st.lists(st.tuples(LOGPROBS, st.integers(0, 5)), max_size=60))
def test_chances_stay_chances_whatever_was_seen(places: list[tuple[list[float], int]]) -> None:
    calibration = Calibration()
    for logprobs, chosen in places:
        calibration.learn(logprobs, chosen if chosen < len(logprobs) else None)
        assert all(0 <= chance <= 1 for chance in calibration.chances(logprobs))
        assert sum(calibration.chances(logprobs)) <= 1 + 1e-9
