"""Cutting prompts to a length, in characters or tokens."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.bench.paper.prompt_length import cut


def words(text: str) -> list[str]:
    """A token a word, a token a sign, and one before them all."""
    return ["<s>", *re.findall(r"\w+|\W", text)]


def no_tokens(_: str) -> list[str]:
    pytest.fail("nothing but characters is counted")


def test_characters_are_counted_without_tokens() -> None:
    assert cut("The lobster", 5, "characters", no_tokens) == "The l"


def test_a_prompt_that_is_short_enough_is_kept() -> None:
    assert cut("The lobster", 99, "characters", no_tokens) == "The lobster"
    assert cut("The lobster", 4, "tokens", words) == "The lobster"


def test_tokens_are_counted_with_those_that_the_tokenizer_adds() -> None:
    assert cut("The lobster is blue", 5, "tokens", words) == "The lobster "


def test_a_limit_below_what_the_tokenizer_adds_leaves_nothing() -> None:
    assert cut("The lobster", 0, "tokens", words) == ""


@given(st.text(alphabet="ab .", max_size=40), st.integers(1, 30))
def test_what_is_kept_fits_and_no_more_would(prompt: str, most: int) -> None:
    kept = cut(prompt, most, "tokens", words)
    assert prompt.startswith(kept)
    assert len(words(kept)) <= most
    assert kept == prompt or len(words(prompt[: len(kept) + 1])) > most
