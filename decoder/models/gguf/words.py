"""Describes a GGUF file in words, for reports; reads only its metadata."""

from collections.abc import Sequence
from pathlib import Path

from decoder.forward.llama_cpp.drafted import STATES
from decoder.models.gguf.file import BY_PATHS, GgufFile, check_gguf, gguf_file

MIB = 1 << 20
FLOAT32_BYTES, FLOAT16_BYTES = 4, 2
INTERVAL = "full_attention_interval"
"""Metadata entry n of hybrid models: every n-th layer has attention, and the other layers keep a state."""


def gguf_words(name: str) -> str:
    """Description of a GGUF file. Raises ConfigError if the engine cannot decode with it."""
    file, shown = gguf_file(name), Path(name).name
    check_gguf(shown, file)
    memory = f"weights of {file.file_bytes / MIB:.0f} MiB"
    if each := row_bytes(file):
        whole = each * (file.size("context_length") or 0)
        memory += f", keys and values: {each / 1024:.0f} KiB per token, {whole / MIB:.0f} MiB for the whole context"
    if state := state_bytes(file):
        memory += f", {STATES} states of {state / MIB:.1f} MiB"
    form = f"llama.cpp, with {BY_PATHS}" if file.keeps_states else "llama.cpp"
    return f"{shown}: {file.architecture}, {file.quantisation}, {memory}; computed by {form}"


def row_bytes(file: GgufFile) -> int | None:
    """Bytes of the keys and values of one token in all layers; None if the metadata lacks the sizes."""
    layers, width = file.size("block_count"), file.size("embedding_length")
    heads = _by_layer(file, "attention.head_count", layers)
    shared = _by_layer(file, "attention.head_count_kv", layers) or heads
    if not layers or not width or not heads or not heads[0]:
        return None
    head = width // heads[0]
    lengths = (file.size("attention.key_length") or head) + (file.size("attention.value_length") or head)
    interval = file.size(INTERVAL) or 1
    attending = sum(shared[interval - 1 :: interval])
    return attending * lengths * (FLOAT32_BYTES if file.in_float32 else FLOAT16_BYTES)


def state_bytes(file: GgufFile) -> int:
    """Bytes of a text's states in all layers; 0 if the metadata lacks the sizes."""
    kernel, inner, state, groups, width, head, latest = (
        file.size(name) or 0
        for name in ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count", "embedding_length",
                     "wkv.head_size", "shortconv.l_cache")
    )  # fmt: skip
    scan = (kernel - 1) * (inner + 2 * groups * state) + state * inner if kernel else 0
    shifted = width * (head + (file.size("token_shift_count") or 2)) if head else 0
    convolution = width * (latest - 1) if latest else 0
    return _keeping(file) * (scan + shifted + convolution) * FLOAT32_BYTES


def _keeping(file: GgufFile) -> int:
    """Number of layers that keep a state."""
    layers, interval = file.size("block_count") or 0, file.size(INTERVAL)
    shared = _by_layer(file, "attention.head_count_kv", layers)
    if 0 in shared:
        return shared.count(0)
    return layers - layers // interval if interval else layers


def _by_layer(file: GgufFile, key: str, layers: int | None) -> list[int]:
    """Values of a metadata entry, one for each layer; empty if the entry is missing."""
    value = file.values.get(f"{file.architecture}.{key}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return [value] * (layers or 0) if isinstance(value, int) else []
