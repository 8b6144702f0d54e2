"""The doctor's checks of models, rounds and times, which need no weights except those of the embedded pair."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import decoder
from decoder.analysis.roofline import SIZES, DeviceSpeed, PassWork, break_even, expected_times, round_s, step_s
from decoder.errors import ConfigError, DecoderError
from decoder.events import TRANSLATED, Expected
from decoder.forward.layer_kinds import longest_text
from decoder.models import checkpoints, compatibility, hub
from decoder.models.adapters import adapter_of
from decoder.models.adapters import base_of as base_of_adapter
from decoder.models.checkpoint_files import Ends, content_of, decoded, weight_files
from decoder.models.gguf_file import GgufFile, gguf_words, is_gguf
from decoder.models.head_weights import sizes_of
from decoder.models.heads import head_shape
from decoder.models.inflated import Inflated, inflated_pair, made
from decoder.models.mtp import mtp_layout
from decoder.models.names import LOOKUP, MTP
from decoder.models.quantisation import Quantisation, memory_of, quantisation_of
from decoder.run import decoding_path as paths
from decoder.run.expected import speed_of, work_of_config
from decoder.run.gguf_options import require_dtypes_of_torch, require_gpu_layers
from decoder.system import device as devices
from decoder.system.host_memory import host_memory
from dynatui.clean import clean_line
from dynatui.cli.finding import Finding, note, ok, problem
from dynatui.gpu import gpus, memory_bytes_per_s
from dynatui.number_format import counted, ms, short, size
from dynatui.session import Models

_CACHED = "models--"
_MOST_NAMED = 6


def models(pair: Models, *, forbidden: bool = False) -> Iterator[Finding]:
    """Checks of the models that would be loaded: presence on this machine, memory, tokenizers, and possible drafts."""
    names = _names_of(pair)
    if not names:
        yield problem("a draft was named without its target", "give --target too, or --draft lookup alone")
        return
    require_dtypes_of_torch(names, device=pair.device, dtype=pair.dtype, draft_dtype=pair.draft_dtype)
    require_gpu_layers(names, pair.gpu_layers)
    if larger := inflated(pair):
        yield ok(made(larger))
        for role, model in larger.items():
            yield from _memory(pair, role, model.architecture, 0)
        return
    absent = [name for name in names.values() if _place_of(name) is None and not checkpoints.looks_like_a_path(name)]
    broken = False
    for role, name in names.items():
        if name in absent:
            yield _absent(role, _base_of(name), forbidden=forbidden)
        else:
            findings = list(_model(pair, role, name, forbidden=forbidden))
            broken |= any(finding.verdict == "problem" for finding in findings)
            yield from findings
    yield from _drafting(pair, names, complete=not absent, broken=broken)


def _drafting(pair: Models, names: Mapping[str, str], *, complete: bool, broken: bool) -> Iterator[Finding]:
    if pair.draft == LOOKUP:
        yield ok("drafts are copied from earlier in the text, without a model")
    elif "draft" not in names:
        if complete and not broken and not is_gguf(names["target"]):
            yield _mtp_layer(names["target"]) if pair.draft == MTP else _fitting_drafts(pair, names["target"])
    elif complete and not head_shape(names["draft"]):
        if compatibility.tokenizers_of(*map(_readable, names.values()))[1]:
            yield ok(f"target and draft have different tokenizers: {TRANSLATED}")
        else:
            yield ok(f"target and draft share a tokenizer{'' if broken else _lacking(names)}")


def rounds(pair: Models) -> Iterator[Finding]:
    """Whether the host or CUDA graphs drive the rounds; on a GPU, tries CUDA graphs with the embedded pair."""
    names = _names_of(pair)
    if not names:
        return  # the check of models reports the missing target
    device = devices.choose_device(pair.device)
    if devices.has_graphs(device) and not pair.exact:
        tried = paths.decoding_path(
            decoder.load_pair(device=pair.device, dtype=pair.dtype, draft_dtype=pair.draft_dtype, kernels=pair.kernels)
        )
        embedded = "rounds of the embedded pair are driven by"
        if tried.name == paths.HOST:
            text = f"{embedded} the host on {device}, which is slower: {tried.reason}"
            yield note(text, "another version of torch or of the driver may help")
            return
        yield ok(f"{embedded} {tried.name} on {device}: {tried.reason}")
    if not all(map(_place_of, names.values())):
        return
    folders = {role: _readable(name) for role, name in names.items() if role == "target" or not head_shape(name)}
    configs = {role: checkpoints.load_config(folder) for role, folder in folders.items()}
    drafting = MTP if pair.draft == MTP else names.get("draft")
    head = head_shape(drafting) if drafting else None
    try:
        path = paths.expected_path(configs, device, exact=pair.exact, head=head)
    except ConfigError:
        return  # the check of models reports that quantised weights cannot be loaded
    if compatibility.tokenizers_of(*folders.values())[1]:
        reason = TRANSLATED if devices.has_graphs(device) else f"{path.reason}; {TRANSLATED}"
        path = paths.DecodingPath(paths.HOST, reason)
    yield ok(f"rounds of the models would be driven by: {path.name}, {path.reason}")


def theoretical_times(pair: Models) -> Iterator[Finding]:
    """Roofline estimates of the speed of plain decoding, and of the time and break-even of rounds of several sizes."""
    names = _names_of(pair)
    if not names or not all(map(_place_of, names.values())):
        return  # the check of models reports missing models
    with suppress(DecoderError):  # the check of models reports errors
        target = _timed(pair, "target", names["target"])
        if isinstance(target, str):
            yield note(f"the times of the models cannot be estimated: {target}")
            return
        draft = _timed(pair, "draft", names["draft"]) if "draft" in names else None
        yield ok(target.speed_words)
        yield from _times(target, draft)


def inflated(pair: Models) -> dict[str, Inflated]:
    """{role: embedded model that costs as much as a larger model}; raises ConfigError for an invalid --inflate."""
    return inflated_pair(pair.inflate, _names_of(pair)) if pair.inflate is not None else {}


def _names_of(pair: Models) -> dict[str, str]:
    """{role: name of the model}; the embedded pair if no model is named; nothing for a draft without its target."""
    if pair.target is None and pair.draft not in (None, LOOKUP):
        return {}
    target = {"target": pair.target or str(checkpoints.EMBEDDED_TARGET)}
    if pair.draft in (LOOKUP, MTP) or (pair.target and pair.draft is None):
        return target
    return {**target, "draft": pair.draft or str(checkpoints.EMBEDDED_DRAFT)}


def _place_of(name: str) -> Path | None:
    """Folder or file on this machine; None if the configuration of the model or of an adapter's base is missing."""
    if is_gguf(name):
        return Path(name) if Path(name).is_file() else None
    if Path(name).is_dir():
        base = _base_of(name)
        return Path(name) if base == name or _place_of(base) else None
    folder = _in_cache(name)
    return folder if folder and (folder / "config.json").is_file() else None


def _readable(name: str) -> str:
    return str(_place_of(name) or name)


def _in_cache(name: str) -> Path | None:
    return hub.cached_folder(name) if hub.is_hub_id(name) else None


def _base_of(name: str) -> str:
    """Folder or hub id of an adapter's base model; `name` itself if there is no readable adapter."""
    folder = Path(name) if Path(name).is_dir() else _in_cache(name)
    base = str(folder)
    with suppress(DecoderError):  # the error is reported where the configuration is read
        base = base_of_adapter(base) if folder else base
    return name if base == str(folder) else base


def _absent(role: str, base: str, *, forbidden: bool) -> Finding:
    if forbidden:
        return problem(f"{role} {base} is not on this machine", "unset HF_HUB_OFFLINE to download it")
    remedy = f"hf download {base} --include '*.json' gets the files that doctor examines, without weights"
    return note(f"{role} {base} is not on this machine yet; it is downloaded when dynatui starts", remedy)


def _lacking(names: Mapping[str, str]) -> str:
    """How many of the target's token ids the draft lacks, as a clause; empty if none, or if a model is a GGUF file."""
    if any(map(is_gguf, names.values())):
        return ""
    places = (_readable(names[role]) for role in ("target", "draft"))
    target, draft = (sizes_of(place, checkpoints.load_config(place)).vocabulary for place in places)
    return f"; {target - draft} of the target's {target} token ids are never drafted" if target > draft else ""


def _mtp_layer(target: str) -> Finding:
    place = _readable(target)
    try:
        projection = mtp_layout(place, checkpoints.load_config(place)).projection
    except DecoderError as error:
        return problem(f"draft: {error}")
    return ok(f"draft {MTP}: the target's checkpoint has an MTP layer: {projection} and other weights")


def _model(pair: Models, role: str, name: str, *, forbidden: bool) -> Iterator[Finding]:
    """Type, weights and memory of a model whose configuration is on this machine."""
    place, shown = _readable(name), checkpoints.display_name(name)
    try:
        if is_gguf(name):
            yield ok(f"{role} {gguf_words(name)}")
            return
        head = head_shape(place) if role == "draft" else None
        config: Any = None if head else _decodable(pair, shown, place)
    except DecoderError as error:
        yield problem(f"{role}: {error}")
        return
    base, called = _base_of(place), f"{role} {shown}: {head.kind if head else config.model_type}"
    if adapter_of(place) is not None:
        yield ok(f"{role} {shown}: the adapter is merged into the weights of {checkpoints.display_name(base)}")
    if weights := _weights_bytes(_readable(base)):
        yield ok(f"{called}, weights of {size(weights)}")
    elif Path(name).is_dir():
        remedy = "choose a model with such weights, or convert this one"
        yield problem(f"{role} {name} has no safetensors weights", remedy)
    elif forbidden:
        yield problem(f"{called}, weights are not on this machine", "unset HF_HUB_OFFLINE")
    else:
        yield note(f"{called}, weights are not on this machine; they are downloaded when dynatui starts")
    if config is not None:
        yield from _memory(pair, role, config, weights)
    if role == "target":
        yield from _end_of_turn(shown, place, config)


def _end_of_turn(shown: str, place: str, config: Any) -> Iterator[Finding]:
    """A note if decoding would not stop at the end of a turn of a chat model."""
    try:
        tokenizer: Any = checkpoints.load_tokenizer(place)
    except DecoderError as error:
        yield problem(f"target: {error}")
        return
    end = getattr(tokenizer, "eos_token_id", None)
    file = "generation_config.json" if content_of(place, "generation_config.json") else "config.json"
    ends: Ends | None = decoded(content_of(place, file) or b"", Ends)
    if not tokenizer.chat_template or end is None or ends is None:
        return
    named = getattr(config, "eos_token_id", None) if ends.eos_token_id is None else ends.eos_token_id
    if end not in (named if isinstance(named, list) else [named]):
        ending = f"its tokenizer ends texts with {clean_line(tokenizer.eos_token)} (token {end})"
        unnamed = f"but {file} does not name this token: an answer may run on until --max-new-tokens"
        yield note(f"target {shown} is made for chat, and {ending}, {unnamed}", f"add {end} to eos_token_id in {file}")


def _decodable(pair: Models, shown: str, folder: str) -> Any:
    """The model's configuration; raises DecoderError if it is unreadable or the model cannot run on this machine."""
    config = checkpoints.load_config(folder)
    compatibility.check_config(shown, config)
    quantisation_of(shown, config, devices.choose_device(pair.device))
    weight_files(folder)  # refuses pointers to weights that were not downloaded
    return config


def _weights_bytes(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))


def _memory(pair: Models, role: str, config: Any, stored_bytes: int) -> Iterator[Finding]:
    """Memory that a model would need, and a note if too little is free; packed weights need `stored_bytes`."""
    device = devices.choose_device(pair.device)
    dtype, quantised = _loaded_form(pair, role, config)
    stored = dtype if quantised else paths.stored_dtype(config, device, dtype)
    weights_bytes = memory_of(config, stored, quantised).weights_bytes
    if quantised and quantised.packed and stored_bytes:
        weights_bytes = stored_bytes
    memory = memory_of(config, paths.arithmetic_dtype(config, device, dtype), quantised)
    precision = quantised.precision(dtype) if quantised else str(dtype).removeprefix("torch.")
    in_dtype = "" if stored is dtype else f" in {str(stored).removeprefix('torch.')}"
    text = (
        f"{role} in {precision}: {size(weights_bytes)} of weights{in_dtype}; KV cache: {size(memory.token_bytes)} per "
        f"token, {size(memory.cache_bytes)} for a full context of {memory.context} tokens"
    )
    free = _free_bytes(device)
    if free is not None and weights_bytes > free:
        remedy = "choose a smaller model, --dtype bfloat16 or another device"
        yield note(f"{text}; only {size(free)} are free on {device}", remedy)
    else:
        yield ok(text)
    if memory.windows:
        sizes = " and ".join(f"{window:,}" for window in memory.windows)
        rings = f"ring buffers would take {size(memory.ring_bytes)}"
        yield ok(f"{role} attends to windows of {sizes} tokens, and keeps all keys and values; {rings}")


def _loaded_form(pair: Models, role: str, config: Any) -> tuple[torch.dtype, Quantisation | None]:
    """Dtype and quantisation in which a model would run; raises ConfigError for weights that cannot be loaded."""
    device = devices.choose_device(pair.device)
    pays = partial(paths.bfloat16_pays, config)
    dtype = devices.choose_dtype(pair.dtype, device, getattr(config, "dtype", None), pays)
    if role == "draft":
        dtype = devices.choose_draft_dtype(pair.draft_dtype, dtype)
    quantised = quantisation_of(role, config, device)
    return quantised.dtype or dtype if quantised else dtype, quantised


def _free_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        seen, place = gpus(), device.index or 0
        return seen[place].free_bytes if place < len(seen) else None
    return (host_memory() or (None, 0))[0]


def _fitting_drafts(pair: Models, target: str) -> Finding:
    """The models on this machine that are smaller than the target and have its tokenizer."""
    fitting = sorted(_drafts_for(pair, target))
    remedy = (
        "give such a model with --draft; guesses of models with other tokenizers are translated through text; "
        f"--draft {LOOKUP} needs no model"
    )
    if not fitting:
        return note("no smaller model with the target's tokenizer is in the Hugging Face cache", remedy)
    named = ", ".join(f"{name} ({size(weights)})" for weights, name in fitting[:_MOST_NAMED])
    more = f" and {len(fitting) - _MOST_NAMED} more" if len(fitting) > _MOST_NAMED else ""
    return ok(f"drafts in the Hugging Face cache with the target's tokenizer: {named}{more}", remedy)


def _drafts_for(pair: Models, target: str) -> Iterator[tuple[int, str]]:
    """Size and name of each cached model that could draft for the target; unreadable models are left out."""
    from huggingface_hub import constants  # noqa: PLC0415 - needed only for models of the Hugging Face hub

    def bytes_of(name: str, folder: str) -> int:
        return memory_of(_decodable(pair, name, folder), torch.float16).weights_bytes

    own = _readable(target)
    largest = bytes_of(target, own)
    for cached in sorted(Path(constants.HF_HUB_CACHE).glob(f"{_CACHED}*")):
        name = cached.name.removeprefix(_CACHED).replace("--", "/")
        folder = str(_place_of(name) or "")
        if name != target and folder and (weights := _weights_bytes(folder)):
            with suppress(DecoderError):
                if bytes_of(name, folder) < largest and compatibility.tokenizers_of(own, folder)[1] is None:
                    yield weights, name


@dataclass(frozen=True)
class _Timed:
    work: PassWork
    speed: DeviceSpeed
    speed_words: str
    context: int
    """Longest text that the model can read, in tokens; 0 if unknown."""


def _timed(pair: Models, role: str, name: str) -> _Timed | str:
    """The work of a model's passes and the speed of its device; if these are unknown, the reason."""
    place = _readable(name)
    if role == "draft" and head_shape(place):
        return "a drafting head reads states of the target"
    larger = inflated(pair).get(role)
    config: Any = larger.architecture if larger else checkpoints.load_config(place)
    gguf = config if isinstance(config, GgufFile) else None
    if gguf and gpus() and pair.gpu_layers != 0:
        return "llama.cpp would spread a GGUF file over CPU and GPU"
    device = devices.choose_device("cpu" if gguf else pair.device)
    dtype, quantised = _loaded_form(pair, role, config)
    work = work_of_config(config, dtype if quantised else paths.stored_dtype(config, device, dtype), quantised)
    if work is None:
        return f"it is unknown how many experts a token of the {role} uses, or how many bits its weights have"
    plain = not gguf and not (quantised and quantised.packed)
    speed = speed_of(device, dtype if plain else None, work, memory_bytes_per_s(str(device)))
    if speed is None:
        return f"the driver does not report clock and bus width of the memory of {device}"
    if gguf:
        context = gguf.size("context_length") or 0
    else:
        context = longest_text(config.get_text_config() if hasattr(config, "get_text_config") else config)
    return _Timed(work, speed, _speed(device, dtype, speed), context)


def _speed(device: torch.device, dtype: torch.dtype, speed: DeviceSpeed) -> str:
    bandwidth, rate = f"{short(speed.bytes_per_s / 1e9, 1)} GB/s", speed.flops_per_s
    if device.type != "cpu":
        return f"the memory of {device} gives at most {bandwidth}, by its clock and bus width; caches give more"
    computes = f" and computes {short(rate / 1e9, 0)} GFLOP/s in {str(dtype).removeprefix('torch.')}" if rate else ""
    return f"the CPU reads {bandwidth} of weights{computes}, measured with {counted(torch.get_num_threads(), 'thread')}"


def _times(target: _Timed, draft: _Timed | str | None) -> Iterator[Finding]:
    drafting = (draft.work, draft.speed) if isinstance(draft, _Timed) else ()
    expected = expected_times(target.work, target.speed, *drafting)
    at_end = expected_times(target.work, target.speed, *drafting, text=target.context)
    yield ok(
        f"estimate of plain decoding: {_rate(expected)} tokens/s, {_rate(at_end)} with a full context of "
        f"{target.context} tokens{'; of the experts, only those of one token are counted' * target.work.sparse}"
    )
    for levels, rows in SIZES:
        duration = ms(round_s(expected, levels, rows))
        estimate = f"estimate of a round of {counted(levels, 'level')} and {rows} rows: {duration} ms"
        if not target.work.sparse:  # experts of further rows are not counted, so the break-even would be too low
            estimate += f"; it is faster from {short(break_even(expected, levels, rows))} tokens per round on"
        yield ok(estimate)
    if isinstance(draft, str):
        yield note(f"passes of the draft are not counted: {draft}")


def _rate(expected: Expected) -> str:
    rate = 1 / step_s(expected)
    return short(rate, 1 if rate >= 1 else 2)
