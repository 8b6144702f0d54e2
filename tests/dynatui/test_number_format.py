"""Tests of the format of numbers."""

from dynatui.number_format import count, short


def test_figures_are_written_as_people_write_them() -> None:
    figures = (0.714, 3.412, 664.4, 1234567.0, None, float("inf"))
    assert [short(figure) for figure in figures] == ["0.71", "3.41", "664", "1.23e+06", "-", "-"]


def test_numbers_of_things_are_written_in_full_as_far_as_that_is_short() -> None:
    assert [count(number) for number in (None, 0, 1234, 9.99e9, 1e15)] == ["-", "0", "1,234", "9,990,000,000", "1e+15"]
