"""Tests of wrapping: line ends, and the tag of each part of a line."""

from hypothesis import given
from hypothesis import strategies as st

from dynatui.render.ink import Flow, inked, wrapped
from tests.dynatui.scripted_runs import lines


def flowed(pieces: list[str], width: int) -> list[str]:
    flow = Flow[int](width)
    for tag, piece in enumerate(pieces):
        flow.add(piece, tag)
    return ["".join(text for text, _ in line) for line in flow.lines]


def test_words_stay_whole() -> None:
    assert flowed(["the keeper had gone"], 10) == ["the keeper", "had gone"]


def test_a_word_that_grows_over_the_edge_moves_down() -> None:
    assert flowed(["the", " light", "house", " was"], 10) == ["the ", "lighthouse", "was"]


def test_a_word_longer_than_a_line_is_broken() -> None:
    assert flowed(["abcdefghij"], 4) == ["abcd", "efgh", "ij"]


def test_line_ends_and_empty_lines_are_kept() -> None:
    assert flowed(["a\n\nb"], 20) == ["a", "", "b"]


def test_a_character_wider_than_the_line_still_gets_one() -> None:
    assert flowed(["世界"], 1)[:2] == ["世", "界"]


@given(st.lists(st.text(alphabet="ab \n世é", max_size=6), max_size=12), st.integers(2, 12))
def test_wrapping_piece_by_piece_equals_wrapping_at_once(pieces: list[str], width: int) -> None:
    slow, fast = flowed(pieces, width), flowed(["".join(pieces)], width)
    assert slow == fast
    assert "".join(fast).replace(" ", "") == "".join(pieces).replace(" ", "").replace("\n", "")


@given(st.lists(st.text(alphabet="a \n", max_size=5), max_size=20), st.integers(1, 9))
def test_every_piece_keeps_a_place_in_the_order_in_which_it_came(pieces: list[str], width: int) -> None:
    flow = Flow[int](width)
    for tag, piece in enumerate(pieces):
        flow.add(piece, tag)
    tags = [tag for line in flow.lines for _, tag in line]
    assert tags == sorted(tags)
    assert set(tags) == set(range(len(pieces)))


def test_stretches_of_one_ink_are_drawn_as_one() -> None:
    flow = Flow[int](20)
    for tag, piece in enumerate(["a", "", "b", " c"]):
        flow.add(piece, tag)
    assert inked(flow.lines[0], lambda text, _: "dim" if text == " " else "plain") == (
        ("ab", "plain"),
        (" ", "dim"),
        ("c", "plain"),
    )


def test_a_long_row_becomes_several() -> None:
    assert lines(wrapped([("one two ", "dim"), ("three", "plain")], 8)) == ["one two ", "three"]
