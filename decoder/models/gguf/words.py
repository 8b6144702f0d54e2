"""A GGUF file in words, for reports; reads its metadata alone."""

from collections.abc import Sequence
from pathlib import Path

from decoder.models.gguf.file import BY_PATHS, GgufFile, gguf_file
from decoder.models.gguf.limits import check_gguf

MIB = 1 << 20
FLOAT32_BYTES, FLOAT16_BYTES = 4, 2


def gguf_words(name: str) -> str:
    """Name, architecture, quantisation and memory of a file; raises ConfigError if it cannot be decoded."""
    file, shown = gguf_file(name), Path(name).name
    check_gguf(shown, file)
    memory = f"weights of {file.file_bytes / MIB:.0f} MiB"
    if each := row_bytes(file):
        whole = each * (file.size("context_length") or 0)
        memory += f", keys and values of {each / 1024:.0f} KiB a token, {whole / MIB:.0f} MiB for the whole context"
    form = f"llama.cpp, {BY_PATHS}" if file.keeps_states else "llama.cpp"
    return f"{shown}: {file.architecture}, {file.quantisation}, {memory}; computed by {form}"


def row_bytes(file: GgufFile) -> int | None:
    """Bytes of keys and values of one token in all layers; None if the metadata does not tell."""
    layers, width = file.size("block_count"), file.size("embedding_length")
    heads = _by_layer(file, "attention.head_count", layers)
    shared = _by_layer(file, "attention.head_count_kv", layers) or heads
    if not layers or not width or not heads or not heads[0]:
        return None
    head = width // heads[0]
    lengths = (file.size("attention.key_length") or head) + (file.size("attention.value_length") or head)
    return sum(shared) * lengths * (FLOAT32_BYTES if file.in_float32 else FLOAT16_BYTES)


def _by_layer(file: GgufFile, key: str, layers: int | None) -> list[int]:
    """An entry's values for all layers; empty if it is missing."""
    value = file.values.get(f"{file.architecture}.{key}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return [value] * (layers or 0) if isinstance(value, int) else []
