"""Adapters, such as LoRA: contents of adapter_config.json, and the base model of an adapter. Reads no weights.

peft defines the format. An adapter is merged into the weights of its base model while these weights are loaded
(`decoder.models.merged_adapter`), so all code after loading works with a single model. A checkpoint with an adapter is
never decoded without the adapter.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from decoder.errors import ModelError, first_line, quoted, shortened
from decoder.models.checkpoint_files import content_of, file_of, weight_files
from decoder.models.hub import ADAPTER as CONFIG

INSTALL = "pip install 'dynatui[adapters]'"


class _Fields(msgspec.Struct, frozen=True):
    """Fields of adapter_config.json."""

    peft_type: str
    base_model_name_or_path: str | None = None
    # Each of these fields names a module that peft would import.
    megatron_config: Any = None
    auto_mapping_module: Any = None


@dataclass(frozen=True)
class Adapter:
    name: str
    """Hub id or folder."""
    base: str
    """Hub id or folder of the base model; equal to `name` if the adapter is beside the model's own files."""
    kind: str
    """Kind of the adapter, by peft's name, for example LORA."""


def adapter_of(name: str) -> Adapter | None:
    """The adapter in a hub id or folder; None without an adapter. Raises ModelError if peft is not installed, or if the
    adapter cannot be read or has no base model.
    """
    content = content_of(name, CONFIG)
    if content is None:
        return None
    try:
        fields = msgspec.json.decode(content, type=_Fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(
            f"cannot read {CONFIG} of {shortened(name)}: {first_line(error)}; download the adapter again"
        ) from error
    shown = f"{shortened(name)} has an adapter ({shortened(fields.peft_type)})"
    if find_spec("peft") is None:
        beside = f", or remove {CONFIG} to decode the model without it" if _is_complete(name) else ""
        raise ModelError(f"{shown}, which needs the package peft; {INSTALL}{beside}")
    if fields.megatron_config or fields.auto_mapping_module:
        raise ModelError(
            f"{shown} whose {CONFIG} names a module to import, which is not supported; merge the adapter with peft"
        )
    return Adapter(name, _base(name, shown, fields.base_model_name_or_path), fields.peft_type)


def base_of(name: str) -> str:
    """Hub id or folder with config.json and weights: the base model if `name` is an adapter, else `name` itself."""
    adapter = adapter_of(name)
    return adapter.base if adapter else name


def _base(name: str, shown: str, given: str | None) -> str:
    if _is_complete(name):
        return name
    if not given:
        raise ModelError(
            f"{shown}, but {CONFIG} says that base_model_name_or_path is {quoted(given)}, and there is no model beside "
            "it; write a hub id or a folder there"
        )
    local = Path(given).expanduser()
    if not local.is_dir() and (local.is_absolute() or given.startswith((".", "~")) or given.count("/") > 1):
        raise ModelError(
            f"{shown} for the model in {shortened(given)}, but there is no such folder; write the folder or hub id of "
            f"the model into base_model_name_or_path of {CONFIG}"
        )
    base = str(local) if local.is_dir() else given
    if file_of(base, CONFIG) and not _is_complete(base):
        raise ModelError(f"{shown} for {shortened(given)}, which is an adapter too; merge that one with peft first")
    return base


def _is_complete(name: str) -> bool:
    return Path(name).is_dir() and Path(name, "config.json").is_file() and bool(weight_files(name))
