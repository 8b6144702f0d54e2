"""Tokenizers as the engine uses them, and those that are understood to the last field, read without transformers.

What has a chat template, or anything else that transformers may read otherwise, `decoder.models.hf_checkpoints` reads.
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
    """The interface of a tokenizer to the engine; the library's own types are wider."""

    chat_template: Any

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Any:
        """The text's ids, as `input_ids`."""

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **settings: Any) -> Any:  # noqa: FBT001, FBT002 - as transformers has it
        """The text of these ids."""

    def get_vocab(self) -> dict[str, int]:
        """All tokens and their ids."""


@dataclass(frozen=True)
class Encoded:
    """A text as a tokenizer of transformers gives it."""

    input_ids: list[int]


class PlainTokenizer:
    """What tokenizer.json says, and nothing else."""

    chat_template: Any = None

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Encoded:
        """The text's ids."""
        del verbose
        (encoded,) = self._inner.encode_batch([text], add_special_tokens=add_special_tokens)
        return Encoded(encoded.ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False, **_settings: Any) -> str:  # noqa: FBT001, FBT002 - as transformers has it
        """The text of these ids; spaces stay as they are."""
        return self._inner.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def get_vocab(self) -> dict[str, int]:
        """All tokens and their ids."""
        return self._inner.get_vocab(with_added_tokens=True)


FAMILIES = frozenset({"gpt_neox", "llama"})
"""Types of models whose tokenizers transformers takes from the file, as far as the class below is named."""


class Settings(Known, frozen=True):
    """tokenizer_config.json."""

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
"""Files that say more."""
PARTS = attrgetter("content", "special", "normalized", "single_word", "lstrip", "rstrip")
"""What tells one `AddedToken` from another; the library compares contents alone."""
MOST_WORDS = 100_000
"""Transformers looks into larger vocabularies for faults of some models."""


def known_tokenizer(folder: Path, model_type: str) -> PlainTokenizer | None:
    """The tokenizer of a folder; None where any of it is not understood."""
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
    except Exception:  # noqa: BLE001 - the library has no narrower error; transformers tells what is wrong
        return None
    plain = isinstance(inner.model, BPE) and inner.truncation is None and inner.padding is None
    found = set(map(PARTS, inner.get_added_tokens_decoder().values()))
    known = plain and _special(settings) <= found and inner.get_vocab_size() <= MOST_WORDS
    return PlainTokenizer(inner) if known else None


def _special(settings: Settings) -> set[Any]:
    """The tokens that settings name, as transformers would add them where they are not there."""
    named = {settings.bos_token, settings.eos_token, settings.unk_token, settings.pad_token} - {None}
    return {PARTS(AddedToken(str(token), special=True, normalized=False)) for token in named}
