"""Tokenizers as the engine uses them, and those that are understood to the last field, read without transformers.

A folder whose tokenizer has a chat template, or anything else of which it is not certain what transformers makes of it,
is read by `decoder.models.hf_checkpoints`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from decoder.models.known_config import Fields, is_flag, is_number, just, understood


class TextTokenizer(Protocol):
    """What the engine uses of a tokenizer; the library's own types are wider."""

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
NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
SETTINGS: Fields = {
    "tokenizer_class": just("TokenizersBackend"),
    "backend": just("tokenizers"),
    "is_local": is_flag,
    "local_files_only": is_flag,
    "model_max_length": is_number,
    **dict.fromkeys(NAMED, lambda value: value is None or isinstance(value, str)),
}
"""Of tokenizer_config.json."""
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
MOST_WORDS = 100_000
"""Transformers looks into larger vocabularies for faults of some models."""
SPECIAL = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}


def known_tokenizer(folder: Path, model_type: str) -> PlainTokenizer | None:
    """The tokenizer of a folder; None where any of it is not understood."""
    if model_type not in FAMILIES or any((folder / name).exists() for name in OTHERS):
        return None
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        if not _plain(json.loads(text), settings):
            return None
        inner = Tokenizer.from_str(text)
    except Exception:  # noqa: BLE001 - the library has no narrower error; transformers tells what is wrong
        return None
    return PlainTokenizer(inner) if inner.get_vocab_size() <= MOST_WORDS else None


def _plain(content: Mapping[str, Any], settings: Any) -> bool:
    """Whether a tokenizer neither cuts nor pads texts, and has the tokens that its settings name as special ones."""
    special = {token["content"] for token in content["added_tokens"] if SPECIAL.items() <= token.items()}
    return (
        isinstance(settings, dict)
        and understood(settings, SETTINGS, frozenset({"tokenizer_class"}))
        and content["truncation"] is content["padding"] is None
        and content["model"]["type"] == "BPE"
        and {settings[name] for name in NAMED if settings.get(name) is not None} <= special
    )
