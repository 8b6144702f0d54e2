"""Reads the models of the embedded pair without transformers, which takes longer to import than torch.

Only these folders are read here, so their layout is known: GPT-NeoX in one file, with or without a tied output head,
and a plain BPE tokenizer. Any other model is read by `decoder.models.hf_checkpoints`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor

from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import FAMILIES, HEAD, shapes
from decoder.models.load_progress import Share, Tell
from decoder.models.tokenizer import Encoded
from decoder.system.device import DTYPES

_HEAD = "embed_out.weight"


def architecture_in(folder: str) -> Architecture:
    config = _content(folder, "config.json")
    return Architecture.of(SimpleNamespace(**config | {"dtype": DTYPES[config["dtype"]]}))


def ends_in(folder: str) -> Any:
    """End-of-text tokens, in the form in which the checkpoint lists them."""
    return _content(folder, "generation_config.json")["eos_token_id"]


class Weights(Mapping[str, Tensor]):
    """The weights in a folder by name; each is read from the file when it is accessed."""

    def __init__(self, folder: str, arch: Architecture, dtype: torch.dtype, device: torch.device, tell: Tell) -> None:
        self._path, self._dtype, self._device = Path(folder, "model.safetensors"), dtype, device
        head = f"{FAMILIES[arch.model_type].embedding}.weight" if arch.tie_word_embeddings else _HEAD
        self._names = {name: name for name in shapes(arch)} | {HEAD: head}
        self._read, self._share = set[str](), Share(len(set(self._names.values())), tell)

    def __getitem__(self, name: str) -> Tensor:
        self._share.reached(len(self._read))
        self._read.add(self._names[name])
        with safe_open(self._path, "pt") as file:
            # Copied, since the tensor is a memory map of the file, which another process may change.
            weight: Tensor = file.get_tensor(self._names[name]).to(self._dtype, copy=True)
        return weight.to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class PlainTokenizer:
    """A `TextTokenizer` that the tokenizer.json of a folder describes completely."""

    chat_template: Any = None

    def __init__(self, folder: str) -> None:
        self._inner = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))

    def __call__(self, text: str, *, add_special_tokens: bool = True, **_settings: Any) -> Encoded:
        (encoded,) = self._inner.encode_batch([text], add_special_tokens=add_special_tokens)
        return Encoded(encoded.ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False, **_settings: Any) -> str:  # noqa: FBT001, FBT002 - as transformers has it
        return self._inner.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def get_vocab(self) -> dict[str, int]:
        return self._inner.get_vocab(with_added_tokens=True)

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int | None]:
        return [self._inner.token_to_id(token) for token in tokens]


def _content(folder: str, part: str) -> Any:
    return json.loads(Path(folder, part).read_bytes())
