"""The probe of models in `dynatui doctor`, which reads the models' configurations but no weights.

Reports whether each model can be decoded and how much memory it needs, and whether target and draft share a tokenizer.
If a target is given without a draft, reports the models on this machine that have the target's tokenizer and could
draft for it. Torch and the model libraries are imported inside the functions.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from decoder.errors import DecoderError
from decoder.events import TRANSLATED
from decoder.models.gguf.file import is_gguf
from decoder.models.gguf.words import gguf_words
from decoder.models.names import LOOKUP, MTP
from decoder.system.host_memory import host_memory
from dynatui.clean import clean_line
from dynatui.cli.doctor_findings import Case, Finding, size
from dynatui.gpu import gpus
from dynatui.session import Models

if TYPE_CHECKING:
    import torch

    from decoder.models.inflated import Inflated
    from decoder.models.quantisation import Quantisation

_CACHED = "models--"
_MOST_NAMED = 6
LARGEST_BYTES = 2**50
"""Upper bound of the size of a model's weights that an index may state."""


def models(case: Case) -> Iterator[Finding]:
    """Reports the models that would be loaded, if they are on this machine."""
    pair = case.models
    if lacks_target(pair):
        yield Finding("problem", "a draft was named without its target", "give --target too, or --draft lookup alone")
        return
    forbidden = bool(os.environ.get("HF_HUB_OFFLINE"))
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models import compatibility as checks  # noqa: PLC0415 - imports torch
    from decoder.models.heads import head_shape  # noqa: PLC0415 - imports torch
    from decoder.run.gguf_options import require_dtypes_of_torch, require_gpu_layers  # noqa: PLC0415 - imports torch

    names = names_of(pair)
    require_dtypes_of_torch(names, device=pair.device, dtype=pair.dtype, draft_dtype=pair.draft_dtype)
    require_gpu_layers(names, pair.gpu_layers)
    absent = [name for name in names.values() if place_of(name) is None and not checkpoints.looks_like_a_path(name)]
    broken = False
    if larger := inflated(pair):
        from decoder.models.inflated import made  # noqa: PLC0415 - imports torch

        yield Finding("ok", made(larger))
        for role, model in larger.items():
            yield from _memory(case, role, model.architecture, 0)
        return
    for role, name in names.items():
        if name not in absent:
            found = list(_model(case, role, name, forbidden=forbidden))
            broken = broken or any(finding.verdict == "problem" for finding in found)
            yield from found
        else:
            yield _absent(role, base_of(name), forbidden=forbidden)
    if pair.draft == LOOKUP:
        yield Finding("ok", "drafts are copied from earlier in the text, without a model")
    elif "draft" not in names:
        if not (absent or broken or is_gguf(names["target"])):
            yield _mtp_layer(names["target"]) if pair.draft == MTP else _fitting_drafts(case, names["target"])
    elif not absent and not head_shape(names["draft"]):
        _, of_draft = checks.tokenizers_of(*(str(place_of(name) or name) for name in names.values()))
        yield Finding(
            "ok",
            f"target and draft have different tokenizers: {TRANSLATED}"
            if of_draft
            else f"target and draft share a tokenizer{'' if broken else _lacking(names)}",
        )


def _absent(role: str, base: str, *, forbidden: bool) -> Finding:
    """Reports a model that is not on this machine."""
    if forbidden:
        return Finding("problem", f"{role} {base} is not on this machine", "unset HF_HUB_OFFLINE to download it")
    return Finding(
        "note",
        f"{role} {base} is not on this machine yet; it is downloaded when dynatui starts",
        f"hf download {base} --include '*.json' gets the files that doctor examines, without weights",
    )


def inflated(pair: Models) -> "dict[str, Inflated]":
    """The embedded models at the cost of larger ones, by role; empty without --inflate.

    Raises:
        ConfigError: The size is invalid, or other models are named.
    """
    from decoder.models.inflated import inflated_pair  # noqa: PLC0415 - imports torch

    return inflated_pair(pair.inflate, names_of(pair)) if pair.inflate is not None else {}


def _lacking(names: Mapping[str, str]) -> str:
    """How many of the target's token ids the draft lacks, in words; empty if none, or if a model is a GGUF file."""
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models.head_weights import sizes_of  # noqa: PLC0415 - imports torch

    if any(map(is_gguf, names.values())):
        return ""
    places = (str(place_of(names[role]) or names[role]) for role in ("target", "draft"))
    target, draft = (sizes_of(place, checkpoints.load_config(place)).vocabulary for place in places)
    return f"; {target - draft} of the target's {target} token ids are never drafted" if target > draft else ""


def _mtp_layer(target: str) -> Finding:
    """Reports whether a target's checkpoint has a supported MTP layer, from the configuration and the weight names."""
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models.mtp import mtp_layout  # noqa: PLC0415 - imports torch

    place = str(place_of(target) or target)
    try:
        layout = mtp_layout(place, checkpoints.load_config(place))
    except DecoderError as error:
        return Finding("problem", f"draft: {error}")
    return Finding(
        "ok", f"draft {MTP}: the target's checkpoint has an MTP layer: {layout.projection} and other weights"
    )


def lacks_target(pair: Models) -> bool:
    """Whether a draft model was named without a target."""
    return pair.target is None and pair.draft not in (None, LOOKUP)


def names_of(pair: Models) -> dict[str, str]:
    """Names of the models by role (target, draft); the names of the embedded pair if the user names no model."""
    from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET  # noqa: PLC0415 - imports torch

    target = {"target": pair.target or str(EMBEDDED_TARGET)}
    if pair.draft in (LOOKUP, MTP) or (pair.target and pair.draft is None):
        return target
    return {**target, "draft": pair.draft or str(EMBEDDED_DRAFT)}


def place_of(name: str) -> Path | None:
    """Folder or GGUF file of a model on this machine; None if its configuration, or that of an adapter's base model,
    must be downloaded first.
    """
    if is_gguf(name):
        return Path(name) if Path(name).is_file() else None
    if Path(name).is_dir():
        base = base_of(name)
        return Path(name) if base == name or place_of(base) else None
    folder = _in_cache(name)
    return folder if folder and (folder / "config.json").is_file() else None


def _in_cache(name: str) -> Path | None:
    """Folder of a hub id's files in the Hugging Face cache; None if there is none."""
    from decoder.models import hub  # noqa: PLC0415 - needed only for models that were named

    return hub.cached_folder(name) if hub.is_hub_id(name) else None


def base_of(name: str) -> str:
    """Folder or hub id of the base model of an adapter on this machine; `name` itself if there is no readable
    adapter.
    """
    from decoder.models.adapters import base_of as base_of_adapter  # noqa: PLC0415 - imports torch

    folder = Path(name) if Path(name).is_dir() else _in_cache(name)
    if folder is None:
        return name
    try:
        base = base_of_adapter(str(folder))
    except DecoderError:
        return name  # reported where the configuration is read
    return name if base == str(folder) else base


def _model(case: Case, role: str, name: str, *, forbidden: bool) -> Iterator[Finding]:
    """Reports type, weights and memory of a model whose configuration is on this machine."""
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models.heads import head_shape  # noqa: PLC0415 - imports torch

    place = str(place_of(name) or name)
    shown = checkpoints.display_name(name)
    try:
        if is_gguf(name):
            yield Finding("ok", f"{role} {gguf_words(name)}")
            return
        head = head_shape(place) if role == "draft" else None
        config: Any = None if head else _decodable(case, shown, place)
    except DecoderError as error:
        yield Finding("problem", f"{role}: {error}")
        return
    kind = head.kind if head else str(config.model_type)
    base = base_of(place)
    if _has_adapter(place):
        yield Finding(
            "ok", f"{role} {shown}: the adapter is merged into the weights of {checkpoints.display_name(base)}"
        )
    if weights := _weights_bytes(str(place_of(base) or base)):
        yield Finding("ok", f"{role} {shown}: {kind}, weights of {size(weights)}")
    elif Path(name).is_dir():
        yield Finding(
            "problem",
            f"{role} {name} has no safetensors weights",
            "choose a model with such weights, or convert this one",
        )
    elif forbidden:
        yield Finding("problem", f"{role} {shown}: {kind}, weights are not on this machine", "unset HF_HUB_OFFLINE")
    else:
        yield Finding(
            "note", f"{role} {shown}: {kind}, weights are not on this machine; they are downloaded when dynatui starts"
        )
    if config is not None:
        yield from _memory(case, role, config, weights or _size_in_index(place))
    if role == "target":
        yield from _end_of_turn(shown, place, config)


def _end_of_turn(shown: str, place: str, config: Any) -> Iterator[Finding]:
    """Reports a model for chats whose turns decoding would not end."""
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models.checkpoint_files import Ends, content_of, decoded  # noqa: PLC0415 - imports torch

    try:
        tokenizer: Any = checkpoints.load_tokenizer(place)
    except DecoderError as error:
        yield Finding("problem", f"target: {error}")
        return
    end = getattr(tokenizer, "eos_token_id", None)
    file = "generation_config.json" if content_of(place, "generation_config.json") else "config.json"
    ends: Ends | None = decoded(content_of(place, file) or b"", Ends)
    if not tokenizer.chat_template or end is None or ends is None:
        return
    named = getattr(config, "eos_token_id", None) if ends.eos_token_id is None else ends.eos_token_id
    if end not in (named if isinstance(named, list) else [named]):
        yield Finding(
            "note",
            f"target {shown} is made for chat, and its tokenizer ends texts with {clean_line(tokenizer.eos_token)} "
            f"(token {end}), but {file} does not name this token: an answer may run on until --max-new-tokens",
            f"add {end} to eos_token_id in {file}",
        )


def gpu_layers_words(pair: Models) -> str:
    """Number of layers that llama.cpp keeps on a GPU, in words; empty if no number was given."""
    return "" if pair.gpu_layers is None else f", with {pair.gpu_layers} layers on a GPU"


def _decodable(case: Case, shown: str, folder: str) -> Any:
    """Configuration in a folder; raises DecoderError if it cannot be read, or if the model cannot be decoded here."""
    from decoder.models import checkpoints  # noqa: PLC0415 - imports torch
    from decoder.models import compatibility as checks  # noqa: PLC0415 - imports torch
    from decoder.models.checkpoint_files import weight_files  # noqa: PLC0415 - imports torch
    from decoder.models.quantisation import quantisation_of  # noqa: PLC0415 - imports torch
    from decoder.system.device import choose_device  # noqa: PLC0415 - imports torch

    config = checkpoints.load_config(folder)
    checks.check_config(shown, config)
    quantisation_of(shown, config, choose_device(case.models.device))
    weight_files(folder)  # refuses pointers to weights that were not downloaded
    return config


def _has_adapter(folder: str) -> bool:
    """Whether a folder has an adapter."""
    from decoder.models.adapters import adapter_of  # noqa: PLC0415 - imports torch

    return adapter_of(folder) is not None


def _weights_bytes(folder: str) -> int:
    """Size of the weights in a folder, in bytes; 0 if there are no weights."""
    return sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))


def _size_in_index(folder: str) -> int:
    """Size of the weights according to the index of a checkpoint in several files; 0 if there is no readable index."""
    with suppress(OSError, ValueError, LookupError, TypeError, OverflowError):
        index = msgspec.json.decode(Path(folder, "model.safetensors.index.json").read_bytes())
        stated = int(index["metadata"]["total_size"])
        return stated if 0 <= stated <= LARGEST_BYTES else 0
    return 0


def _memory(case: Case, role: str, config: Any, stored_bytes: int) -> Iterator[Finding]:
    """Reports the memory of a model in the dtype in which it would run, and whether that much memory is free.

    `stored_bytes` is the size of the weight files, or 0 if unknown; packed quantised weights take as much memory as
    their files.
    """
    from decoder.models.memory import memory_of  # noqa: PLC0415 - imports torch
    from decoder.run.decoding_path import arithmetic_dtype, stored_dtype  # noqa: PLC0415 - imports torch
    from decoder.system.device import choose_device  # noqa: PLC0415 - imports torch

    device = choose_device(case.models.device)
    dtype, quantised = loaded_form(case, role, config)
    free, stored = _free_bytes(device), dtype if quantised else stored_dtype(config, device, dtype)
    memory = replace(
        memory_of(config, arithmetic_dtype(config, device, dtype), quantised),
        weights_bytes=memory_of(config, stored, quantised).weights_bytes,
    )
    if quantised and quantised.packed and stored_bytes:
        memory = replace(memory, weights_bytes=stored_bytes)
    precision = quantised.precision(dtype) if quantised else str(dtype).removeprefix("torch.")
    weights = f"{size(memory.weights_bytes)} of weights"
    if stored is not dtype:
        weights += f" in {str(stored).removeprefix('torch.')}"
    text = (
        f"{role} in {precision}: {weights}; KV cache: {size(memory.token_bytes)} per token, "
        f"{size(memory.cache_bytes)} for a full context of {memory.context} tokens"
    )
    if free is not None and memory.weights_bytes > free:
        remedy = "choose a smaller model, --dtype bfloat16 or another device"
        yield Finding("note", f"{text}; only {size(free)} are free on {device}", remedy)
    else:
        yield Finding("ok", text)
    if memory.windows:
        sizes = " and ".join(f"{window:,}" for window in memory.windows)
        rings = f"ring buffers would take {size(memory.ring_bytes)}"
        yield Finding("ok", f"{role} attends to windows of {sizes} tokens, and keeps all keys and values; {rings}")


def loaded_form(case: Case, role: str, config: Any) -> "tuple[torch.dtype, Quantisation | None]":
    """Dtype and quantisation in which a model of this configuration would run.

    Raises:
        ConfigError: This machine cannot load the quantised weights.
    """
    from decoder.models.quantisation import quantisation_of  # noqa: PLC0415 - imports torch
    from decoder.run.decoding_path import bfloat16_pays  # noqa: PLC0415 - imports torch
    from decoder.system.device import (  # noqa: PLC0415 - imports torch
        choose_device,
        choose_draft_dtype,
        choose_dtype,
    )

    pair, device = case.models, choose_device(case.models.device)
    dtype = choose_dtype(pair.dtype, device, getattr(config, "dtype", None), partial(bfloat16_pays, config))
    if role == "draft":
        dtype = choose_draft_dtype(pair.draft_dtype, dtype)
    quantised = quantisation_of(role, config, device)
    return quantised.dtype or dtype if quantised else dtype, quantised


def _free_bytes(device: "torch.device") -> int | None:
    """Free memory of a device; None if it is unknown."""
    if device.type == "cuda":
        seen, place = gpus(), device.index or 0
        return seen[place].free_bytes if place < len(seen) else None
    free, _ = host_memory() or (None, 0)
    return free


def _fitting_drafts(case: Case, target: str) -> Finding:
    """Names the models on this machine that are smaller than the target and have its tokenizer."""
    fitting = sorted(_drafts_for(case, target))
    remedy = (
        "give such a model with --draft; guesses of models with other tokenizers are translated through text; "
        f"--draft {LOOKUP} needs no model"
    )
    if not fitting:
        return Finding("note", "no smaller model with the target's tokenizer is in the Hugging Face cache", remedy)
    named = ", ".join(f"{name} ({size(weights)})" for weights, name in fitting[:_MOST_NAMED])
    more = f" and {len(fitting) - _MOST_NAMED} more" if len(fitting) > _MOST_NAMED else ""
    return Finding("ok", f"drafts in the Hugging Face cache with the target's tokenizer: {named}{more}", remedy)


def _drafts_for(case: Case, target: str) -> Iterator[tuple[int, str]]:
    """Size and name of each cached model that could draft for a target; models that cannot be read are left out."""
    import torch  # noqa: PLC0415 - needed only by this probe

    from decoder.models import compatibility as checks  # noqa: PLC0415 - imports torch
    from decoder.models.memory import memory_of  # noqa: PLC0415 - imports torch

    own = str(place_of(target) or target)
    largest = memory_of(_decodable(case, target, own), torch.float16).weights_bytes

    def fits(name: str, folder: str) -> bool:
        try:
            smaller = memory_of(_decodable(case, name, folder), torch.float16).weights_bytes < largest
            return smaller and checks.tokenizers_of(own, folder)[1] is None
        except DecoderError:
            return False

    for name in _cached():
        folder = place_of(name)
        if name != target and folder and (weights := _weights_bytes(str(folder))) and fits(name, str(folder)):
            yield weights, name


def _cached() -> Iterator[str]:
    """Hub ids of all models in the Hugging Face cache."""
    from huggingface_hub import constants  # noqa: PLC0415 - needed only for models of the Hugging Face hub

    for folder in sorted(Path(constants.HF_HUB_CACHE).glob(f"{_CACHED}*")):
        yield folder.name.removeprefix(_CACHED).replace("--", "/")
