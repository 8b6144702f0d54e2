"""Tests of text for people: foreign text is cleaned for a terminal, and numbers are short."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynatui.clean import clean, clean_line
from dynatui.number_format import count, short

ORDINARY = "Grüße, 世界! [bold]no markup[/bold] 👍🏽 e\u0301"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b]52;c;x\x07\x1b[2J", "␛]52;c;x␇␛[2J"),
        ("\x9b31m\x9d0;t\x7f\x85", "\ufffd31m\ufffd0;t␡\ufffd"),
        ("\u202e\u2066\u200f\u061c\ufeff\u2028\ud800", "\ufffd" * 7),
        ("a\n\tb\r", "a\n    b␍"),
        (ORDINARY, ORDINARY),
    ],
    ids=[
        "escapes",
        "eight bits and deletes",
        "what turns text around and half characters",
        "lines and tabs",
        "ordinary",
    ],
)
def test_what_steers_becomes_visible_and_ordinary_text_stays(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert clean_line(text) == cleaned.replace("\n", "␊")


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    found = clean(text)
    assert all(unicodedata.category(character) not in {"Cc", "Cs"} or character == "\n" for character in found)
    assert clean(found) == found


def test_figures_are_written_as_people_write_them() -> None:
    figures = (0.714, 3.412, 664.4, 1234567.0, None, float("inf"))
    assert [short(figure) for figure in figures] == ["0.71", "3.41", "664", "1.23e+06", "-", "-"]
    assert [count(number) for number in (None, 0, 1234, 9.99e9, 1e15)] == ["-", "0", "1,234", "9,990,000,000", "1e+15"]
