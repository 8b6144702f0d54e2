"""Tokenizes a growing text, or a text that follows another text, with the tokenizer of another model.

A tokenizer may treat the beginning of a text differently (for example, add a space), and a token may span two texts. So
a text is tokenized together with the end of the text before it. This module knows tokenizers, but neither models nor
drafts.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from decoder.models.text import encoded, first_tokens
from decoder.models.tokenizer import TextTokenizer

CONTEXT_CHARACTERS = 64
"""Number of characters of the preceding text that are tokenized together with a text."""
OPEN_CHARACTERS, SHORTENED_TO = 512, 128
"""The open text is the end of the text, which is tokenized again when text is added. If it is longer than
`OPEN_CHARACTERS`, it is shortened, but to no less than `SHORTENED_TO` characters.
"""
TRIED_PLACES = 8
"""Maximum number of places at which `_shorten` tries to divide the open text."""
_ANCHORS = ("\n", ".", "a", "0")
"""If a token would span a text and the preceding text, these anchors are tried in place of the preceding text. Few
texts would form a joint token with every anchor.
"""
_WORD_START = re.compile(r"(?<=\S)\s")


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix of two sequences, which must have the same type."""
    agreed, most = 0, min(len(one), len(other))
    # Comparing slices is faster than comparing tokens one by one, and most of the compared texts are equal.
    if one[:most] == other[:most]:
        return most
    while agreed < most:
        middle = (agreed + most + 1) // 2
        if one[agreed:middle] == other[agreed:middle]:
            agreed = middle
        else:
            most = middle - 1
    return agreed


class Following:
    """Tokens of texts that follow a given text."""

    def __init__(self, tokenizer: TextTokenizer, before: str = "") -> None:
        """Prepares to tokenize texts that follow `before`, of which only the last `CONTEXT_CHARACTERS` matter."""
        self._tokenizer = tokenizer
        self.before = before[-CONTEXT_CHARACTERS:]
        self._known = encoded(tokenizer, self.before)

    def tokens(self, text: str) -> list[int]:
        """Tokens of `text` as a continuation of `before`; if a token would span both texts, tokens of `text` alone."""
        tokens = self.after(text)
        if tokens is not None:
            return tokens
        apart = (Following(self._tokenizer, anchor).after(text) for anchor in _ANCHORS)
        return next((tokens for tokens in apart if tokens is not None), encoded(self._tokenizer, text))

    def after(self, text: str) -> list[int] | None:
        """Tokens of `text` as a continuation of `before`; None if a token would span both texts."""
        whole, count = encoded(self._tokenizer, self.before + text), len(self._known)
        return whole[count:] if whole[:count] == self._known else None


class GrowingTokens:
    """Tokens of a growing text; only the end of the text is tokenized again when text is added."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokens = first_tokens(tokenizer)
        """Tokens of the whole text, after the special tokens with which the tokenizer begins a text."""
        self._tokenizer = tokenizer
        self._following = Following(tokenizer)
        self._final = len(self.tokens)
        """Number of tokens at the start of `tokens` that can no longer change."""
        self._open = ""
        """Text of the remaining tokens, which may still change."""
        self._longest = OPEN_CHARACTERS

    def append(self, text: str) -> None:
        """Adds text at the end."""
        if not text:
            return
        self._open += text
        self.tokens[self._final :] = self._following.tokens(self._open)
        if len(self._open) > self._longest:
            self._shorten()

    def _shorten(self) -> None:
        """Divides the open text at a place where this changes no token, and makes the tokens before the place final."""
        for place in islice(self._places(), TRIED_PLACES):
            first, rest = self._open[:place], self._open[place:]
            tokens, following = (
                self._following.tokens(first),
                Following(self._tokenizer, self._following.before + first),
            )
            if [*tokens, *following.tokens(rest)] == self.tokens[self._final :]:
                self._final += len(tokens)
                self._open, self._following, self._longest = rest, following, OPEN_CHARACTERS
                return
        self._longest = 2 * len(self._open)

    def _places(self) -> Iterator[int]:
        """Places at which the open text may be divided: starts of words, beginning with the latest, and then all
        places, since some scripts have no spaces.
        """
        last = len(self._open) - SHORTENED_TO
        starts = [match.start() for match in _WORD_START.finditer(self._open, last - SHORTENED_TO, last)]
        yield from reversed(starts[-TRIED_PLACES // 2 :])
        yield from range(last, 0, -1)
