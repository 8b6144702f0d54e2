"""Tokenizes a growing text, or a text that follows another text, with the tokenizer of another model.

A tokenizer may treat the beginning of a text differently (for example, add a space), so a text is tokenized together
with the end of the text before it. Other tokens than those of the whole text only lower the acceptance of drafts.
"""

import re
from collections.abc import Sequence

from decoder.models.text import encoded, first_tokens
from decoder.models.tokenizer import TextTokenizer

CONTEXT_CHARACTERS = 64
"""Number of characters of the preceding text that are tokenized together with a text."""
OPEN_CHARACTERS, SHORTENED_TO = 512, 128
"""Length above which the end of a text that is tokenized again with each addition is shortened, and its length then."""
_WORD_START = re.compile(r"(?<=\S) (?=\S)")


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix of two sequences, which must have the same type."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # nearly always so, and faster than comparing tokens one by one
        return shorter
    return next(place for place in range(shorter) if one[place] != other[place])


class Following:
    """Tokens of texts that follow `before`."""

    def __init__(self, tokenizer: TextTokenizer, before: str = "") -> None:
        self._tokenizer = tokenizer
        self.before = before[-CONTEXT_CHARACTERS:]
        self._known = encoded(tokenizer, self.before)

    def tokens(self, text: str) -> list[int]:
        """Tokens of `text` as a continuation of `before`; if a token would span both texts, tokens of `text` alone."""
        whole, count = encoded(self._tokenizer, self.before + text), len(self._known)
        return whole[count:] if whole[:count] == self._known else encoded(self._tokenizer, text)


class GrowingTokens:
    """Tokens of a growing text; only its end is tokenized again when text is added."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokens = first_tokens(tokenizer)
        """Tokens of the whole text, after the special tokens with which the tokenizer begins a text."""
        self._tokenizer, self._following = tokenizer, Following(tokenizer)
        self._final, self._open = len(self.tokens), ""
        """Number of tokens at the start that no longer change, and the text of the others."""

    @property
    def end(self) -> str:
        """The last characters of the text."""
        return (self._following.before + self._open)[-CONTEXT_CHARACTERS:]

    def append(self, text: str) -> None:
        self._open += text
        self.tokens[self._final :] = self._following.tokens(self._open)
        if len(self._open) > OPEN_CHARACTERS:
            last = len(self._open) - SHORTENED_TO
            starts = [found.start() for found in _WORD_START.finditer(self._open, last - SHORTENED_TO, last)]
            start = starts[-1] if starts else last
            first, self._open = self._open[:start], self._open[start:]
            self.tokens[self._final :] = self._following.tokens(first)
            self._final = len(self.tokens)
            self._following = Following(self._tokenizer, self._following.before + first)
            self.tokens += self._following.tokens(self._open)
