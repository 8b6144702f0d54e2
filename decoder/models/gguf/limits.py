"""Refuses GGUF files that the engine cannot run, before llama.cpp loads them, since loading may end the process."""

from collections.abc import Sequence

from decoder.errors import ConfigError, quoted
from decoder.models.gguf.file import AGAIN, GgufFile

LARGEST = {
    "block_count": 1024,
    "embedding_length": 2**18,
    "context_length": 2**31,
}
"""Several times the sizes of the largest models."""
LIMIT = "choose a decoder-only model"
EMBEDDING = "token_embd.weight"
LONG_FACTORS = "rope_factors_long.weight"


def check_gguf(name: str, file: GgufFile) -> None:
    """Raises ConfigError for a file that llama.cpp cannot load, or with which the engine cannot decode."""
    _check_whole(name, file)
    _check_tokenizer(name, file)
    _check_layers(name, file)


def _check_whole(name: str, file: GgufFile) -> None:
    if not file.architecture:
        raise ConfigError(f"{name} does not name its architecture; {AGAIN}")
    parts = file.values.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise ConfigError(f"{name} is one of {parts} parts of a model; merge all parts with llama-gguf-split --merge")
    for key, most in LARGEST.items():
        if not 1 <= (size := file.size(key) or 0) <= most:
            raise ConfigError(f"{name} says that {key} is {quoted(size)}, but it must be 1 to {most}; {AGAIN}")


def _check_tokenizer(name: str, file: GgufFile) -> None:
    if file.values.get("tokenizer.ggml.model") in (None, "none", "no_vocab") or not file.tokens:
        raise ConfigError(f"{name} has no tokenizer; {AGAIN}")
    if len(set(file.tokens)) < len(file.tokens):  # such a file would make llama.cpp end the process
        raise ConfigError(f"{name} has a tokenizer that names a token twice; {AGAIN}")


def _check_layers(name: str, file: GgufFile) -> None:
    if not (_heads(file) or file.keeps_states):
        raise ConfigError(f"{name} has no attention heads; {LIMIT}")
    if EMBEDDING not in file.tensors:
        raise ConfigError(f"{name} has no weights of a language model; {AGAIN}")
    if file.values.get(f"{file.architecture}.attention.causal") is False:
        raise ConfigError(f"{name} is an encoder ({file.architecture}), which writes no text; {LIMIT}")
    if LONG_FACTORS in file.tensors:
        raise ConfigError(
            f"{name} has different rotary frequencies for long texts (longrope), so the text would depend on the size "
            "of the cache; choose a model without longrope"
        )


def _heads(file: GgufFile) -> bool:
    """The file gives one number for all layers, or one number per layer."""
    heads = file.values.get(f"{file.architecture}.attention.head_count")
    return all(heads) and bool(heads) if isinstance(heads, Sequence) else bool(heads)
