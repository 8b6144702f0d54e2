"""Interface of tokenizers, and a tokenizer that is read without transformers, if every field in its files is known.

Tokenizers with a chat template, or with files that transformers may treat differently, are read by
`decoder.models.hf_checkpoints`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from decoder.models.known_config import Known, Number, decoded


class TextTokenizer(Protocol):
    """Interface of a tokenizer: the part of transformers' interface that the engine uses."""

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


class PlainTokenizer:
    """A tokenizer that a tokenizer.json describes completely."""

    chat_template: Any = None

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Encoded:
        """Tokenizes a text; returns its token ids."""
        del verbose
        (encoded,) = self._inner.encode_batch([text], add_special_tokens=add_special_tokens)
        return Encoded(encoded.ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False, **_settings: Any) -> str:  # noqa: FBT001, FBT002 - as transformers has it
        """The text of these token ids, without any clean-up of spaces."""
        return self._inner.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def get_vocab(self) -> dict[str, int]:
        """All tokens of the vocabulary and their ids."""
        return self._inner.get_vocab(with_added_tokens=True)

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int | None]:
        """Ids of these tokens; None for a token that does not exist."""
        return [self._inner.token_to_id(token) for token in tokens]


FAMILIES = frozenset({"gpt_neox", "llama"})
"""Model types whose tokenizers transformers reads from tokenizer.json alone, by its class TokenizersBackend."""


class Settings(Known, frozen=True):
    """Known fields of tokenizer_config.json."""

    tokenizer_class: Literal["TokenizersBackend"]
    backend: Literal["tokenizers"] = "tokenizers"
    is_local: bool = False
    local_files_only: bool = False
    model_max_length: Number = 1.0
    bos_token: str | None = None
    eos_token: str | None = None
    unk_token: str | None = None
    pad_token: str | None = None


OTHERS = (
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates",
    "tokenizer.model",
    "tekken.json",
)
"""Files with further settings of a tokenizer; if a folder has any of them, transformers reads the tokenizer."""
PARTS = attrgetter("content", "special", "normalized", "single_word", "lstrip", "rstrip")
"""Fields by which two `AddedToken` objects are compared; the library `tokenizers` would compare only `content`."""
MOST_WORDS = 100_000
"""Largest vocabulary of a tokenizer that is read here; transformers corrects some tokenizers of larger vocabularies."""


def known_tokenizer(folder: Path, model_type: str) -> PlainTokenizer | None:
    """The tokenizer in a folder; None if any part of its files is unknown."""
    paths = folder / "tokenizer_config.json", folder / "tokenizer.json"
    if (
        model_type not in FAMILIES
        or any((folder / name).exists() for name in OTHERS)
        or not all(map(Path.is_file, paths))
    ):
        return None
    settings = decoded(paths[0].read_bytes(), Settings)
    if settings is None:
        return None
    try:
        inner = Tokenizer.from_file(str(paths[1]))
    except Exception:  # noqa: BLE001 - the library has no narrower error; transformers reports the fault
        return None
    plain = isinstance(inner.model, BPE) and inner.truncation is None and inner.padding is None
    added = set(map(PARTS, inner.get_added_tokens_decoder().values()))
    known = plain and _special(settings) <= added and inner.get_vocab_size() <= MOST_WORDS
    return PlainTokenizer(inner) if known else None


def _special(settings: Settings) -> set[Any]:
    """Special tokens named in the settings, each with the fields that it would have if transformers added it."""
    named = {settings.bos_token, settings.eos_token, settings.unk_token, settings.pad_token} - {None}
    return {PARTS(AddedToken(str(token), special=True, normalized=False)) for token in named}
