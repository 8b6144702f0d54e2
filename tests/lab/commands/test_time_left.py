"""Tests of the progress display: a bar, a percentage and the remaining time."""

import pytest

from dynatui.lab.commands.bench_result import bar, left_s, words


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0.0, "[....................] 0%"), (0.5, "[##########..........] 50%"), (1.0, "[####################] 100%")],
)
def test_a_bar_is_as_full_as_its_share(share: float, drawn: str) -> None:
    assert bar(share) == drawn


def test_time_left_is_told_at_the_pace_since_the_first_step() -> None:
    assert left_s(0.5, 0.75, 10.0) == pytest.approx(10.0)


def test_as_long_as_nothing_has_moved_no_time_is_told() -> None:
    assert left_s(0.5, 0.5, 10.0) is None


@pytest.mark.parametrize(("seconds", "told"), [(40, "40 s"), (180, "3 min"), (9000, "2.5 h")])
def test_a_time_is_told_as_people_say_it(seconds: float, told: str) -> None:
    assert words(seconds) == told
