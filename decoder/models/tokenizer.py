"""Interface of tokenizers. Independent of prompts and streams."""

from dataclasses import dataclass
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


def decoded(tokenizer: TextTokenizer, ids: list[int], *, special: bool = False) -> str:
    """Text of these tokens without clean-up of spaces; `special` includes the text of special tokens."""
    text = tokenizer.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    assert isinstance(text, str), "a single list of ids has a single text"  # noqa: S101 - the library's type is wider
    return text
