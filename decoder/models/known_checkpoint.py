"""Checkpoints of the native families, read without transformers: config.json, generation_config.json and safetensors.

The native families are GPT-NeoX, Llama, Mistral, Qwen2 and Qwen3. A checkpoint is read here only if every field and
every weight is known. Otherwise, and if the checkpoint is missing, these functions return None, and
`decoder.models.hf_checkpoints` reads the checkpoint or reports the fault.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decoder.errors import ModelError, shortened
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import FAMILIES, HEAD, shapes
from decoder.models.gguf.file import is_gguf
from decoder.models.git_lfs import is_pointer
from decoder.models.hub import ADAPTER, hub_file, is_hub_id
from decoder.models.known_config import Count, Known, Number, Token, architecture, decoded
from decoder.models.load_progress import Share, Tell

UNUSED = re.compile(r"(rotary_emb\.inv_freq|attention\.(masked_)?bias)$")
"""Pattern of the names of buffers that older checkpoints contain in addition to the weights."""
OLD_HEAD = {"gpt_neox": "embed_out.weight"}
TEXTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)
"""Files without weights that transformers reads."""
FILES = {"F64", "F32", "F16", "BF16"}
"""Supported dtypes of weights, by their names in safetensors files."""


class Generation(Known, frozen=True):
    """Known fields of generation_config.json; only the first field is used."""

    eos_token_id: Token | list[Token] | None = None
    bos_token_id: Token | None = None
    pad_token_id: Token | None = None
    do_sample: bool = False
    temperature: Number = 1.0
    top_p: Number = 1.0
    top_k: Token = 0
    repetition_penalty: Number = 1.0
    max_length: Count = 1
    max_new_tokens: Count = 1
    use_cache: bool = True
    transformers_version: str = ""
    from_model_config: bool = msgspec.field(default=False, name="_from_model_config")
    # A checkpoint with one of these flags set is not read here, since the flags request extra outputs.
    output_attentions: bool = False
    output_hidden_states: bool = False


class Ends(msgspec.Struct, frozen=True):
    """End-of-text tokens, in the form in which a checkpoint lists them."""

    eos_token_id: Any = None


class Index(msgspec.Struct, frozen=True):
    """model.safetensors.index.json: the file name of each weight."""

    weight_map: dict[str, str]


def known_architecture(name: str) -> Architecture | None:
    """The architecture of a hub id or folder; None if any part of its configuration is unknown."""
    # A checkpoint with an adapter (LoRA, for example) has weights that the architecture does not describe.
    return None if file_of(name, ADAPTER) else architecture(content_of(name, "config.json") or b"")


def known_ends(name: str) -> Ends | None:
    """End-of-text tokens from generation_config.json, or from config.json if there is no generation_config.json; None
    if a field is unknown.
    """
    content = content_of(name, "generation_config.json")
    if content is None:
        return Ends(decoded(content_of(name, "config.json") or b"", Ends).eos_token_id)
    generation: Generation | None = decoded(content, Generation)
    more = generation is None or generation.output_attentions or generation.output_hidden_states
    return None if generation is None or more else Ends(generation.eos_token_id)


class Weights(Mapping[str, Tensor]):
    """Weights by name; a weight is read when it is accessed. `places` maps its name to its file and its name in the
    file.
    """

    def __init__(
        self, places: Mapping[str, tuple[Path, str]], dtype: torch.dtype, device: torch.device, tell: Tell
    ) -> None:
        self._places, self._dtype, self._device = places, dtype, device
        self._read: set[tuple[Path, str]] = set()
        self._share = Share(len(set(places.values())), tell)

    def __getitem__(self, name: str) -> Tensor:
        path, there = self._places[name]
        self._share.reached(len(self._read))
        self._read.add((path, there))
        with safe_open(path, "pt") as file:
            # Copied, since the tensor is a memory map of the file, which another process may change.
            weight: Tensor = file.get_tensor(there).to(self._dtype, copy=True)
        return weight.to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def known_weights(
    name: str, arch: Architecture, dtype: torch.dtype, device: torch.device, tell: Tell
) -> Weights | None:
    """The weights of a hub id or folder; None unless their names and shapes are exactly those of the architecture."""
    wanted = shapes(arch)
    try:
        stored = [(own, (path, there)) for path in weight_files(name) for own, there in _names(path, arch, wanted)]
    except (_UnknownError, SafetensorError, OSError):
        return None
    places = dict(stored)
    if len(places) != len(stored) or places.keys() != wanted.keys():
        return None
    # If the output head has no weights in the file, it shares the weights of the embedding.
    shared = {HEAD: places[f"{FAMILIES[arch.model_type].embedding}.weight"]}
    return Weights({**shared, **places}, dtype, device, tell)


class _UnknownError(Exception):
    """Raised for a checkpoint with an unknown part; transformers then reads the checkpoint."""


def _names(path: Path, arch: Architecture, wanted: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, str]]:
    """Yields a pair (name in the architecture, name in the file) for each weight in a file; raises `_UnknownError` for
    a weight with an unexpected name, shape or dtype.
    """
    with safe_open(path, "pt") as file:
        if (file.metadata() or {}).get("format") != "pt":
            raise _UnknownError
        for there in filter(lambda key: not UNUSED.search(key), file.keys()):
            own, part = HEAD if there == OLD_HEAD.get(arch.model_type) else there, file.get_slice(there)
            if tuple(part.get_shape()) != wanted.get(own) or part.get_dtype() not in FILES:
                raise _UnknownError
            yield own, there


def weight_names(name: str) -> frozenset[str]:
    """Names of all weights in a checkpoint's safetensors files, or in their index if there is one; empty if files are
    missing or cannot be read.
    """
    index: Index | None = decoded(content_of(name, "model.safetensors.index.json") or b"", Index)
    if index:
        return frozenset(index.weight_map)
    try:
        return frozenset(chain.from_iterable(map(_keys, weight_files(name))))
    except (SafetensorError, OSError):
        return frozenset()


def _keys(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return [*file.keys()]


def weight_shapes(name: str) -> Mapping[str, tuple[int, ...]]:
    """Shapes of all weights in a checkpoint's safetensors files, by name; empty if files are missing or unreadable."""
    shapes = dict[str, tuple[int, ...]]()
    try:
        for path in weight_files(name):
            with safe_open(path, "pt") as file:
                shapes |= {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError):
        return {}
    return shapes


def weight_files(name: str) -> list[Path]:
    """The safetensors files of a checkpoint, one or several; an empty list if any file is missing."""
    if single := file_of(name, "model.safetensors"):
        return [single]
    index: Index | None = decoded(content_of(name, "model.safetensors.index.json") or b"", Index)
    if index is None or any("/" in part for part in index.weight_map.values()):
        return []
    files = [file_of(name, part) for part in sorted(set(index.weight_map.values()))]
    return [path for path in files if path] if all(files) else []


def content_of(name: str, part: str) -> bytes | None:
    """Contents of the file `part` of a hub id or folder; None if there is no such file."""
    path = file_of(name, part)
    return path.read_bytes() if path else None


def check_texts(name: str) -> None:
    """Raises ModelError if a configuration or tokenizer file in a folder is a Git LFS pointer."""
    if Path(name).is_dir():
        for part in TEXTS:
            file_of(name, part)


def file_of(name: str, part: str) -> Path | None:
    """Path of the file `part` of a hub id or folder; None if there is no such file. Downloads the file if necessary.

    Raises:
        ModelError: The file is a Git LFS pointer, or it is missing in the local cache and the hub cannot be asked.
    """
    if is_gguf(name):
        return None
    if Path(name).is_dir():
        path = Path(name, part)
        if not path.is_file():
            return None
        if is_pointer(path):
            raise ModelError(
                f"{part} of {shortened(name)} is a Git LFS pointer, not the file itself; run git lfs pull in it"
            )
        return path
    return hub_file(name, part) if is_hub_id(name) else None
