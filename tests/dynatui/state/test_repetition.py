"""How much of a text and a path occurs in the text before."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynatui.state.repetition import FARTHEST, repeated_length

TOKENS = st.lists(st.integers(0, 2), max_size=24)


def longest(text: list[int], path: list[int]) -> int:
    """The same by trying every length at every place."""
    whole = [*text, *path]
    lengths = range(len(text), 0, -1)
    found = (n for n in lengths if any(text[i : i + n] == whole[len(whole) - n :] for i in range(len(text) - n + 1)))
    return next(found, 0)


@given(TOKENS, TOKENS.filter(bool))
def test_it_is_the_longest_suffix_that_the_text_holds(text: list[int], path: list[int]) -> None:
    assert repeated_length(text, path) == longest(text, path)


def test_a_token_is_compared_whole_whatever_its_number() -> None:
    assert repeated_length([7, 1 << 53, 8], [7, 1 << 53]) == 2
    assert repeated_length([7, (1 << 53) - 1, 8], [7, 1 << 53]) == 0


@pytest.mark.wall_time
def test_a_long_text_of_one_token_is_searched_within_a_frame() -> None:
    began = time.perf_counter()
    assert repeated_length([5] * 200_000, [5] * 8) == FARTHEST
    assert time.perf_counter() - began < 0.1
