"""Rows of text with inks: their width, wrapping, the tag of each part of a line, and shortened messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dynatui.clean import clean_line
from dynatui.render.ink import (
    Flow,
    Row,
    bar,
    best,
    column,
    fit,
    fitting,
    frame,
    in_ascii,
    inked,
    trend,
    width_of,
    wrapped,
)
from dynatui.render.words import note_within
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, text_of

NOTE = "dynatree has no verifier, which is a knob of delayed, khisti and others; w watches another method"
TITLE: Row = (("Work", "title"), (" ─ what the guesses cost", "dim"))


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_row_takes_exactly_the_width_it_is_given(text: str, width: int) -> None:
    assert width_of(fit(((clean_line(text), "plain"),), width)) == cell_len(column(clean_line(text), width)) == width


@given(st.text(max_size=60), st.text(max_size=60), st.integers(1, 130))
def test_a_message_is_never_wider_than_its_row(reason: str, remedy: str, width: int) -> None:
    for note in (f"{reason}; {remedy}", reason):
        assert cell_len(note_within(note, width)) <= width


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, NOTE),
        (60, "dynatree has no verifier, which i…; w watches another method"),
        (26, "w watches another method"),
        (10, "w watches…"),
    ],
)
def test_the_reason_is_cut_before_the_remedy(width: int, shown: str) -> None:
    assert note_within(NOTE, width).rstrip() == shown


@pytest.mark.parametrize("size", [(0, 0), (1, 1), (7, 9), (30, 2), (20, 4)])
def test_where_there_is_no_room_the_frame_is_left_out_and_a_long_title_is_cut(size: tuple[int, int]) -> None:
    rows = lines(frame((("T" * 50, "title"),), [(("body", "plain"),)], size))
    assert [len(row) for row in rows] == [size[0]] * size[1]


def test_the_longest_parts_and_wordings_that_fit_are_shown_whole() -> None:
    assert text_of(fitting([(("one ", "plain"),), (("two ", "plain"),), (("three", "plain"),)], 10)) == "one two   "
    assert text_of(fit((("世界", "plain"),), 3)) == "世 "
    assert best(8, "tokens per round", "tokens") == "tokens"
    assert best(4, "tokens per round", "tokens") == "tok…"
    assert note_within("all knobs of dynatree have their start values", 20) == "all knobs of dynatr…"


def test_bars_and_trends_are_drawn_to_scale_and_survive_absurd_numbers() -> None:
    assert [bar(0.5, 4), bar(0.53125, 4)] == ["██  ", "██▏ "]
    assert trend([0.0, 0.5, 1.0], 9, 0.0, 1.0) == "▁▅█"
    assert trend([1.0, 2.0], 0, 0.0, 1.0) == ""
    assert trend([1e308, -1e308, float("inf"), float("nan")], 4, 0.0, 0.0) == "▁▁▁▁"


def test_in_ascii_nothing_else_is_left_of_our_own_signs() -> None:
    rows = frame((("τh → ● ○ ▲ · …", "title"),), [((bar(0.7, 9) + trend([0, 1], 2, 0, 1), "bar"),)], (30, 3))
    assert all(line.isascii() for line in lines(in_ascii(rows)))


def flow_of(pieces: list[str], width: int) -> Flow[int]:
    flow = Flow[int](width)
    for tag, piece in enumerate(pieces):
        flow.add(piece, tag)
    return flow


def flowed(pieces: list[str], width: int) -> list[str]:
    return ["".join(text for text, _ in line) for line in flow_of(pieces, width).lines]


@pytest.mark.parametrize(
    ("pieces", "width", "rows"),
    [
        (["the keeper had gone"], 10, ["the keeper", "had gone"]),
        (["the", " light", "house", " was"], 10, ["the ", "lighthouse", "was"]),
        (["abcdefghij"], 4, ["abcd", "efgh", "ij"]),
        (["a\n\nb"], 20, ["a", "", "b"]),
    ],
    ids=["words stay whole", "a word that grows moves down", "a long word is broken", "empty lines are kept"],
)
def test_text_is_wrapped(pieces: list[str], width: int, rows: list[str]) -> None:
    assert flowed(pieces, width) == rows


def test_a_character_wider_than_the_line_still_gets_one() -> None:
    assert flowed(["世界"], 1)[:2] == ["世", "界"]


@given(st.lists(st.text(alphabet="ab \n世é", max_size=6), max_size=12), st.integers(2, 12))
def test_wrapping_piece_by_piece_equals_wrapping_at_once(pieces: list[str], width: int) -> None:
    slow, fast = flowed(pieces, width), flowed(["".join(pieces)], width)
    assert slow == fast
    assert "".join(fast).replace(" ", "") == "".join(pieces).replace(" ", "").replace("\n", "")


@given(st.lists(st.text(alphabet="a \n", max_size=5), max_size=20), st.integers(1, 9))
def test_every_piece_keeps_a_place_in_the_order_in_which_it_came(pieces: list[str], width: int) -> None:
    tags = [tag for line in flow_of(pieces, width).lines for _, tag in line]
    assert tags == sorted(tags)
    assert set(tags) == set(range(len(pieces)))


def test_stretches_of_one_ink_are_drawn_as_one() -> None:
    row = inked(flow_of(["a", "", "b", " c"], 20).lines[0], lambda text, _: "dim" if text == " " else "plain")
    assert row == (("ab", "plain"), (" ", "dim"), ("c", "plain"))


def test_a_long_row_becomes_several() -> None:
    assert lines(wrapped([("one two ", "dim"), ("three", "plain")], 8)) == ["one two ", "three"]


test_golden = golden(
    {
        "a frame holds title and body": lambda: frame((("Tree", "title"),), [(("one", "plain"),)], (16, 4)),
        "a title that is cut says so": lambda: (frame(TITLE, [], (20, 4)), frame(TITLE[:1], [], (20, 4))),
    }
)
