"""Interface of tokenizers, and how they decode single tokens. Independent of prompts and streams."""

from codecs import utf_8_decode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol


class TextTokenizer(Protocol):
    chat_template: Any

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Any:
        """Tokenizes a text; the result has the token ids as `input_ids`."""

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **settings: Any) -> Any:  # noqa: FBT001, FBT002 - as transformers has it
        """The text of these token ids."""

    def get_vocab(self) -> dict[str, int]:
        """All tokens of the vocabulary and their ids."""

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Ids of these tokens, given as a list; None, or the id of unknown tokens, for a token that does not exist."""


@dataclass(frozen=True)
class Encoded:
    """Result of tokenizing a text, in transformers' form."""

    input_ids: list[int]


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LETTER, _CONTINUATION = ord("A"), 0x80
"""Bytes: the letter A, and a byte that is invalid after the letter."""


def decoded(tokenizer: TextTokenizer, ids: list[int], *, special: bool = False) -> str:
    """Text of these tokens without clean-up of spaces; `special` includes the text of special tokens."""
    text = tokenizer.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    assert isinstance(text, str), "a single list of ids has a single text"  # noqa: S101 - the library's type is wider
    return text


def byte_name(value: int) -> str:
    return f"<0x{value:02X}>"


class TokenKinds:
    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self.anchor: list[int] = tokenizer("a", add_special_tokens=False).input_ids[-1:]
        """An ordinary token, next to which other tokens are decoded as if within a text."""
        self.bytes = _byte_tokens(tokenizer)
        """Byte value of each token that byte fallback uses; empty for tokenizers without byte fallback."""
        self.invalid = self._invalid()
        """A token that makes a run of byte tokens invalid wherever it follows a whole character; None if bytes are
        decoded character by character.
        """
        self._silent: dict[int, bool] = {}

    def in_run(self, token: int) -> int | None:
        """Value of a byte token that is decoded together with its whole run; None for all other tokens."""
        return None if self.invalid is None else self.bytes.get(token)

    def silent(self, token: int) -> bool:
        """Whether decoding skips a token, so that a character may continue after it; most special tokens are silent."""
        if token not in self._silent:
            around = self.anchor
            self._silent[token] = not self._decoded(token) and (
                self._decoded(*around, token, *around) == self._decoded(*around, *around)
            )
        return self._silent[token]

    def _decoded(self, *tokens: int) -> str:
        return decoded(self._tokenizer, [*tokens])

    def _invalid(self) -> int | None:
        by_value = {value: token for token, value in self.bytes.items()}
        if not {_LETTER, _CONTINUATION} <= by_value.keys():
            return None
        letter, continuation = by_value[_LETTER], by_value[_CONTINUATION]
        return None if chr(_LETTER) in self._decoded(letter, continuation) else continuation


def _byte_tokens(tokenizer: TextTokenizer) -> dict[int, int]:
    def ids(values: Iterable[int]) -> list[int | None]:
        found: list[int | None] = tokenizer.convert_tokens_to_ids([byte_name(value) for value in values])
        return found

    first, second = ids((_LETTER, _CONTINUATION))
    if None in (first, second) or first == second:  # a missing name may have the id of unknown tokens
        return {}
    numbers = ids(range(256))
    counts = Counter(numbers)
    return {token: value for value, token in enumerate(numbers) if token is not None and counts[token] == 1}


@dataclass(frozen=True)
class ByteRun:
    """The run of byte tokens at the end of a text; empty if the text ends with another token."""

    length: int = 0
    """Number of bytes of the run; 0 if the run is invalid."""
    unread: bytes = b""
    """Last bytes of the run, whose text has not been returned yet."""
    torn: int = 0
    """Number of bytes at the end of `unread` that belong to an incomplete character."""
    invalid: bool = False
    """Whether the run has a byte that makes it invalid, whatever follows."""

    def followed_by(self, value: int) -> "ByteRun":
        unread = self.unread + bytes([value])
        torn = unread[len(self.unread) - self.torn :]
        try:
            _, complete = utf_8_decode(torn, "strict", False)
        except UnicodeDecodeError:
            return ByteRun(unread=unread, invalid=True)
        return ByteRun(self.length + 1, unread, len(torn) - complete)

    @property
    def characters(self) -> int:
        """Number of complete characters that have not been returned yet."""
        return len(self.unread[: len(self.unread) - self.torn].decode())

    def read(self) -> "ByteRun":
        return replace(self, unread=self.unread[len(self.unread) - self.torn :])
