"""Tests of rows of text with inks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dynatui.clean import clean_line
from dynatui.render.ink import bar, best, column, fit, fitting, frame, in_ascii, trend, width_of
from tests.dynatui.scripted_runs import lines, text_of


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_row_takes_exactly_the_width_it_is_given(text: str, width: int) -> None:
    assert width_of(fit(((clean_line(text), "plain"),), width)) == width


@given(st.text(max_size=30), st.integers(0, 20))
def test_a_column_takes_exactly_its_width(text: str, width: int) -> None:
    assert cell_len(column(clean_line(text), width)) == width


def test_wide_characters_are_never_cut_in_half() -> None:
    assert text_of(fit((("世界", "plain"),), 3)) == "世 "


def test_a_frame_holds_title_and_body() -> None:
    assert lines(frame((("Tree", "title"),), [(("one", "plain"),)], (16, 4))) == [
        "╭─ Tree ───────╮",
        "│ one          │",
        "│              │",
        "╰──────────────╯",
    ]


def test_a_long_title_is_cut() -> None:
    assert [len(line) for line in lines(frame((("x" * 50, "title"),), [], (20, 4)))] == [20, 20, 20, 20]


@pytest.mark.parametrize("size", [(0, 0), (1, 1), (7, 9), (30, 2)])
def test_where_there_is_no_room_the_frame_is_left_out(size: tuple[int, int]) -> None:
    rows = lines(frame((("T", "title"),), [(("body", "plain"),)], size))
    assert [len(row) for row in rows] == [size[0]] * size[1]


def test_only_whole_parts_are_shown() -> None:
    assert text_of(fitting([(("one ", "plain"),), (("two ", "plain"),), (("three", "plain"),)], 10)) == "one two   "


def test_the_longest_wording_that_fits_is_chosen() -> None:
    assert best(8, "tokens per round", "tokens") == "tokens"
    assert best(4, "tokens per round", "tokens") == "tok…"


def test_bars_and_trends_are_drawn_to_scale() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(0.53125, 4) == "██▏ "
    assert trend([0.0, 0.5, 1.0], 9, 0.0, 1.0) == "▁▅█"
    assert trend([1.0, 2.0], 0, 0.0, 1.0) == ""


def test_scales_survive_absurd_numbers() -> None:
    assert trend([1e308, -1e308, float("inf"), float("nan")], 4, 0.0, 0.0) == "▁▁▁▁"


def test_in_ascii_nothing_else_is_left_of_our_own_signs() -> None:
    rows = frame((("τh → ● ○ ▲ · …", "title"),), [((bar(0.7, 9) + trend([0, 1], 2, 0, 1), "bar"),)], (30, 3))
    assert all(line.isascii() for line in lines(in_ascii(rows)))


def test_a_title_that_is_cut_says_so() -> None:
    rows = frame((("Work", "title"), (" ─ what the guesses cost", "dim")), [], (20, 4))
    assert text_of(rows[0]) == "╭─ Work ─ what t… ─╮"
    assert "…" not in text_of(frame((("Work", "title"),), [], (20, 4))[0])
