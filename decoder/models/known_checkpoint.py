"""Checkpoints of the fast families, read without transformers: config.json, generation_config.json and safetensors.

Only what is understood to the last field and the last weight is read here. Where anything else is found, or nothing,
these functions return None, and `decoder.models.hf_checkpoints` reads the checkpoint or says what is wrong with it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import FAMILIES, HEAD, shapes
from decoder.models.known_config import (
    Fields,
    architecture,
    are_tokens,
    is_count,
    is_count_or_zero,
    is_flag,
    is_number,
    is_text,
    is_token,
    just,
    understood,
)
from decoder.models.load_progress import Share, Tell

UNUSED = re.compile(r"(rotary_emb\.inv_freq|attention\.(masked_)?bias)$")
"""What older checkpoints hold beside their weights."""
OLD_HEAD = {"gpt_neox": "embed_out.weight"}
FILES = {"F64", "F32", "F16", "BF16"}
"""Dtypes of weights in files."""
GENERATION: Fields = {
    "eos_token_id": are_tokens,
    "bos_token_id": is_token,
    "pad_token_id": is_token,
    "do_sample": is_flag,
    "temperature": is_number,
    "top_p": is_number,
    "top_k": is_count_or_zero,
    "repetition_penalty": is_number,
    "max_length": is_count,
    "max_new_tokens": is_count,
    "use_cache": is_flag,
    "output_attentions": just(False),
    "output_hidden_states": just(False),
    "transformers_version": is_text,
    "_from_model_config": is_flag,
}
"""Of generation_config.json; only the first is used."""
NOT_FOUND = object()


def known_architecture(name: str) -> Architecture | None:
    """What the configuration of a hub id or folder says."""
    # Beside an adapter, weights are not all there is of a model.
    return None if _file(name, "adapter_config.json") else architecture(_read(name, "config.json"))


@dataclass(frozen=True)
class Ends:
    """The tokens that end a text, as a checkpoint names them."""

    eos: Any


def known_ends(name: str) -> Ends | None:
    """What generation_config.json says of them, or where there is none, config.json."""
    settings = _read(name, "generation_config.json")
    if settings is NOT_FOUND:
        settings = {"eos_token_id": _read(name, "config.json").get("eos_token_id")}
    return (
        Ends(settings.get("eos_token_id")) if isinstance(settings, dict) and understood(settings, GENERATION) else None
    )


class Weights(Mapping[str, Tensor]):
    """Weights by name, each read from its file when it is asked for."""

    def __init__(
        self, places: Mapping[str, tuple[Path, str]], dtype: torch.dtype, device: torch.device, tell: Tell
    ) -> None:
        """Takes what was found.

        Args:
            places: Name of each weight to its file and its name there.
            dtype: They are rounded to it.
            device: They are put there.
            tell: Learns which share of them was read.
        """
        self._places, self._dtype, self._device = places, dtype, device
        self._read: set[tuple[Path, str]] = set()
        self._share = Share(len(set(places.values())), tell)

    def __getitem__(self, name: str) -> Tensor:
        path, there = self._places[name]
        self._share.reached(len(self._read))
        self._read.add((path, there))
        with safe_open(path, "pt") as file:
            # A copy: what is read lies in the file, which somebody may change.
            weight: Tensor = file.get_tensor(there).to(self._dtype, copy=True)
        return weight.to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def known_weights(
    name: str, look: Architecture, dtype: torch.dtype, device: torch.device, tell: Tell
) -> Weights | None:
    """The weights of a hub id or folder: exactly those that its configuration says, in the sizes that it says."""
    wanted = shapes(look)
    try:
        found = [(own, (path, there)) for path in _files(name) for own, there in _names(path, look, wanted)]
    except _UnknownError:
        return None
    places = dict(found)
    if len(places) != len(found) or places.keys() != wanted.keys():
        return None
    # A head that has no weights of its own is the embedding.
    shared = {HEAD: places[f"{FAMILIES[look.model_type].embedding}.weight"]}
    return Weights({**shared, **places}, dtype, device, tell)


class _UnknownError(Exception):
    """Something is not as it is known."""


def _names(path: Path, look: Architecture, wanted: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, str]]:
    """The weights in a file, all of which are wanted: their names, and what they are called there."""
    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("format") != "pt":
                raise _UnknownError
            for there in filter(lambda key: not UNUSED.search(key), file.keys()):
                own, part = HEAD if there == OLD_HEAD.get(look.model_type) else there, file.get_slice(there)
                if tuple(part.get_shape()) != wanted.get(own) or part.get_dtype() not in FILES:
                    raise _UnknownError
                yield own, there
    except (SafetensorError, OSError) as error:
        raise _UnknownError from error


def _files(name: str) -> list[Path]:
    """The files of weights, one or several."""
    if single := _file(name, "model.safetensors"):
        return [single]
    index = _read(name, "model.safetensors.index.json")
    parts = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(part, str) and "/" not in part for part in parts.values()):
        raise _UnknownError
    found = [_file(name, part) for part in sorted(set(parts.values()))]
    if not all(found):
        raise _UnknownError
    return [path for path in found if path]


def _read(name: str, part: str) -> Any:
    """What a file of JSON says; `NOT_FOUND` where there is none, None where it is no JSON."""
    path = _file(name, part)
    if path is None:
        return NOT_FOUND
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _file(name: str, part: str) -> Path | None:
    """A file of a folder, or of a hub id, which is downloaded where it is not here yet; None: there is none."""
    if Path(name).is_dir():
        path = Path(name, part)
        return path if path.is_file() else None
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - a folder needs no hub

    try:
        return Path(hf_hub_download(name, part))
    except Exception:  # noqa: BLE001 - names, networks and servers fail in many ways; transformers tells them apart
        return None
