"""Finding words in a text of tokens."""

import pytest

from dynatui.state.search import hits

TOKENS = ["The", " moon", " was", " fu", "ll.\n", "A", " full", " Moon", "", "light"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("moon", [range(1, 2), range(7, 8)]),
        ("Moon", [range(7, 8)]),
        ("full", [range(3, 5), range(6, 7)]),
        ("full. a", [range(3, 6)]),
        ("moonlight", [range(7, 10)]),
        ("  was  ", [range(2, 3)]),
        ("sun", []),
        ("", []),
        ("  ", []),
        ("l.", [range(4, 5)]),
    ],
)
def test_words_are_found_across_tokens_lines_and_capitals(query: str, found: list[range]) -> None:
    assert list(hits(query, TOKENS)) == found


def test_letters_whose_capitals_are_longer_keep_their_places() -> None:
    assert hits("b", ["ẞß", "İ", "b"]) == (range(2, 3),)
