"""Patches: a terminal that receives only changes shows the same as one that receives everything."""

from itertools import pairwise

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.style import Style

from dynatui.render.ink import Ink, Row, fit
from dynatui.screen.widgets.wire import RESET, Frame, cell_style, cells, changes, style_change

WIDTH = 24
STYLES: dict[Ink, Style] = {
    "plain": Style.parse("#dfe4ec on #0f1319"),
    "strong": Style.parse("bold #dfe4ec on #0f1319"),
    "bonus": Style.parse("underline #f2b866 on #0f1319"),
    "tab": Style.parse("bold reverse #7cb7ff on #0f1319"),
    "prompt": Style.parse("italic color(3) on #0f1319"),
    "bar": Style(),
}
LOOKS = {ink: cell_style(style, ColorSystem.TRUECOLOR) for ink, style in STYLES.items()}
EMPTY: Row = ((" " * WIDTH, "plain"),)

texts = st.lists(st.sampled_from(["a", "b", " ", " ", "-", "│", "⣿", "漢", "👩", "e\u0301"]), max_size=8).map("".join)
rows = st.lists(st.tuples(texts, st.sampled_from(sorted(STYLES))), max_size=6).map(
    lambda spans: fit(tuple(spans), WIDTH)
)


def terminal(*patches: str) -> list[tuple[object, ...]]:
    screen = pyte.Screen(WIDTH + 4, 3)
    stream = pyte.Stream(screen)
    for patch in patches:
        stream.feed(patch)
    return [_seen(screen.buffer[1][x]) for x in range(screen.columns)]


def patched(before: Row, after: Row, column: int = 0, line: int = 0) -> str:
    frame = Frame()
    frame.patch(LOOKS, cells(before), cells(after), column, line)
    return frame.text()


def whole(row: Row) -> str:
    return "\x1b[2;3H" + "".join(f"{style_change(RESET, LOOKS[ink])[0]}{text}\x1b[m" for text, ink in row)


def _seen(cell: pyte.screens.Char) -> tuple[object, ...]:
    under = (cell.bg, cell.underscore, cell.reverse)
    return under if cell.data == " " and not cell.reverse else (cell.data, cell.fg, cell.bold, cell.italics, *under)


def test_a_look_stays_in_force_from_row_to_row() -> None:
    frame, row = Frame(), cells(fit((("word", "strong"),), WIDTH))
    for line in (0, 1):
        frame.patch(LOOKS, cells(EMPTY), row, 0, line)
    assert frame.text().endswith("word\x1b[2;1Hword\x1b[m")


@given(rows, rows, rows)
def test_a_row_looks_the_same_whatever_was_written_before_it_in_the_frame(other: Row, before: Row, after: Row) -> None:
    frame = Frame()
    frame.patch(LOOKS, cells(EMPTY), cells(other), 2, 0)
    frame.patch(LOOKS, cells(before), cells(after), 2, 1)
    assert terminal(whole(before), frame.text()) == terminal(whole(before), patched(before, after, 2, 1))


@given(st.lists(rows, min_size=1, max_size=6))
def test_patches_add_up_to_the_row_itself(history: list[Row]) -> None:
    patches = [patched(before, after, 2, 1) for before, after in pairwise([EMPTY, *history])]
    assert terminal(whole(EMPTY), *patches) == terminal(whole(EMPTY), whole(history[-1]))


def test_an_unchanged_row_costs_nothing() -> None:
    row = fit((("time", "strong"), (" flies", "plain")), WIDTH)
    assert patched(row, row) == ""


def test_a_changed_figure_costs_a_move_and_its_signs() -> None:
    before, after = (fit(((f"acceptance {share}   depth 5.0", "plain"),), WIDTH) for share in (".71", ".73"))
    assert patched(before, after) == "\x1b[1;14H\x1b[38;2;223;228;236;48;2;15;19;25m3\x1b[m"


def test_places_far_apart_are_written_one_by_one_and_near_ones_together() -> None:
    after = fit((("a b" + " " * 12 + "c", "plain"),), WIDTH)
    assert list(changes(cells(EMPTY), cells(after))) == [(0, (("a b", "plain"),)), (15, (("c", "plain"),))]


def test_blanks_between_words_of_one_look_need_no_code() -> None:
    words = fit((("two", "strong"), (" ", "plain"), ("words", "strong")), WIDTH)
    assert "two words" in patched(EMPTY, words)


def test_underlined_words_leave_their_gaps_alone() -> None:
    words = fit((("two", "bonus"), (" ", "plain"), ("words", "bonus")), WIDTH)
    assert "two words" not in patched(EMPTY, words)


def test_a_row_with_wide_signs_is_sent_whole() -> None:
    before, after = (fit(((f"漢字 {figure}", "plain"),), WIDTH) for figure in "12")
    assert list(changes(cells(before), cells(after))) == [(0, after)]


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ("bold", "bold", ""),
        ("", "bold", "\x1b[1m"),
        ("bold red", "red", "\x1b[22m"),
        ("bold red", "", "\x1b[m"),
        ("bold dim", "dim", "\x1b[22;2m"),
        ("red on blue", "red", "\x1b[49m"),
        ("red", "blue", "\x1b[34m"),
    ],
)
def test_a_turn_names_only_what_differs(before: str, after: str, codes: str) -> None:
    old, new = (cell_style(Style.parse(style), ColorSystem.STANDARD) for style in (before, after))
    assert style_change(old, new)[0] == codes


def test_colours_become_those_that_the_terminal_has() -> None:
    style = Style.parse("#ff0000")
    assert cell_style(style, ColorSystem.TRUECOLOR).foreground == "38;2;255;0;0"
    assert cell_style(style, ColorSystem.EIGHT_BIT).foreground.startswith("38;5;")
    assert cell_style(Style(), ColorSystem.TRUECOLOR) is RESET
