"""Tests of the cleaning of foreign text for a terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from dynatui.clean import clean, clean_line


def test_escape_sequences_become_visible_signs() -> None:
    assert clean("\x1b]52;c;x\x07\x1b[2J") == "␛]52;c;x␇␛[2J"


def test_eight_bit_escapes_and_deletes_are_replaced() -> None:
    assert clean("\x9b31m\x9d0;t\x7f\x85") == "\ufffd31m\ufffd0;t␡\ufffd"


def test_text_cannot_be_turned_around_or_hold_half_characters() -> None:
    assert clean("\u202e\u2066\u200f\u061c\ufeff\u2028\ud800") == "\ufffd" * 7


def test_lines_stay_and_tabs_become_spaces() -> None:
    assert clean("a\n\tb\r") == "a\n    b␍"
    assert clean_line("a\nb") == "a␊b"


def test_ordinary_text_is_left_alone() -> None:
    text = "Grüße, 世界! [bold]no markup[/bold] 👍🏽 e\u0301"
    assert clean(text) == text


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    assert all(unicodedata.category(character) not in {"Cc", "Cs"} or character == "\n" for character in clean(text))


@given(st.text())
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)
