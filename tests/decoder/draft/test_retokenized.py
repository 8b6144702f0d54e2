"""Retokenization: a growing text has the tokens of the whole text, and a continuation has no prefix space."""

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from decoder.draft.translated_drafter import OPEN_CHARACTERS, Following, GrowingTokens, common_prefix
from decoder.models.text import encoded, first_tokens
from decoder.models.tokenizer import TextTokenizer
from tests.decoder.other_tokenizers import TEXT, TOKENIZERS, byte_level, unigram, word_pieces


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return TOKENIZERS[request.param]()


def pieces(text: str, luck: random.Random) -> list[str]:
    """The text in pieces of 1 to 9 characters."""
    found = []
    while text:
        count = luck.randint(1, 9)
        found.append(text[:count])
        text = text[count:]
    return found


def test_a_growing_text_has_the_tokens_of_the_whole_text(tokenizer: Any) -> None:
    luck, text = random.Random(1), TEXT * 8
    growing, grown = GrowingTokens(tokenizer), ""
    for piece in pieces(text, luck):
        growing.append(piece)
        grown += piece
    whole = [*first_tokens(tokenizer), *encoded(tokenizer, grown)]
    assert len(grown) > 2 * OPEN_CHARACTERS
    assert growing.tokens == whole


def test_only_the_end_of_a_long_text_is_tokenized_again(tokenizer: Any) -> None:
    lengths: list[int] = []

    def counted(text: str, **settings: Any) -> Any:
        lengths.append(len(text))
        return tokenizer(text, **settings)

    growing = GrowingTokens(cast("TextTokenizer", counted))
    growing.append(TEXT * 20)
    lengths.clear()
    growing.append("more")
    assert max(lengths) < 2 * OPEN_CHARACTERS


def test_the_first_tokens_are_those_before_a_text_alone() -> None:
    assert first_tokens(byte_level()) == []
    assert first_tokens(unigram()) == [0]
    assert first_tokens(word_pieces()) == [1]


def test_a_continuation_has_no_prefix_space() -> None:
    tokenizer = unigram()
    tokens = Following(tokenizer, "Nothing is").tokens(" lost: the text")
    assert encoded(tokenizer, "Nothing is lost: the text") == [*encoded(tokenizer, "Nothing is"), *tokens]


def test_a_text_that_would_be_joined_with_the_one_before_is_tokenized_apart() -> None:
    tokenizer = byte_level()
    assert len(encoded(tokenizer, " the")) == 1
    tokens = Following(tokenizer, "at t").tokens("he")
    assert tokenizer.decode(tokens) == "he"


@pytest.mark.parametrize(
    ("one", "other", "agreed"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2, 4, 5], 2), ([1, 2], [1, 2, 3], 2), ([2, 1], [1, 1], 0)],
)
def test_common_prefixes(one: Sequence[int], other: Sequence[int], agreed: int) -> None:
    assert common_prefix(one, other) == agreed
