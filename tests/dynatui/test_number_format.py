"""Figures as people write them."""

from dynatui.number_format import short


def test_figures_are_written_as_people_write_them() -> None:
    figures = (0.714, 3.412, 664.4, 1234567.0, None, float("inf"))
    assert [short(figure) for figure in figures] == [".71", "3.41", "664", "1.23e+06", "-", "-"]
