"""Bootstrap intervals, Student's t and verdicts against known values."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, Verdict, bootstrap, compared_to_limit, students_t

VALUES = np.random.default_rng(0).normal(5, 1, 30)


def means(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    (places,) = drawn
    found: NDArray[np.float64] = VALUES[places].mean(axis=1)
    return found


def test_a_bootstrap_of_a_mean_is_about_as_wide_as_its_standard_error_says() -> None:
    low, high = bootstrap(means, [len(VALUES)], seed=0)
    assert high - low == pytest.approx(2 * 1.96 * VALUES.std() / np.sqrt(len(VALUES)), rel=0.1)


def test_a_bootstrap_is_the_same_for_the_same_seed_and_narrower_for_a_smaller_coverage() -> None:
    one, again = (bootstrap(means, [len(VALUES)], seed=3) for _ in range(2))
    low, high = bootstrap(means, [len(VALUES)], seed=3, coverage=0.5)
    assert one == again
    assert one[0] < low < high < one[1]


def test_places_are_drawn_within_each_group() -> None:
    def within(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        assert [places.shape for places in drawn] == [(50, 2), (50, 7)]
        assert [places.max() for places in drawn] == [1, 6]
        return np.zeros(50)

    assert bootstrap(within, [2, 7], seed=0, draws=50) == (0.0, 0.0)


@pytest.mark.parametrize(("freedom", "value"), [(2.5, 3.575), (3, 3.182), (5, 2.571), (10, 2.228), (1000, 1.962)])
def test_students_t_is_that_of_the_tables(freedom: float, value: float) -> None:
    assert students_t(freedom) == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(
    ("ends", "above", "below"),
    [
        ((1.1, 1.3), "holds", "does not hold"),
        ((0.7, 0.9), "does not hold", "holds"),
        ((0.9, 1.1), "cannot tell", "cannot tell"),
        ((None, None), "cannot tell", "cannot tell"),
    ],
)
def test_a_verdict_needs_the_whole_interval(
    ends: tuple[float | None, float | None], above: Verdict, below: Verdict
) -> None:
    found = Interval(value=1.0, low=ends[0], high=ends[1])
    assert (compared_to_limit(found), compared_to_limit(found, below=True)) == (above, below)


def test_files_leave_out_a_spread_that_is_not_told() -> None:
    found = Interval(value=1.0, low=None, high=2.0)
    assert msgspec.json.encode(found) == b'{"mean":1.0,"low":null,"high":2.0}'
    assert msgspec.json.encode(msgspec.structs.replace(found, std=0.0)).startswith(b'{"mean":1.0,"std":0.0,')
