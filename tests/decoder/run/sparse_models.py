"""Makers for tests of the work of a pass: configurations of mixtures of experts, and metadata of GGUF files."""

from pathlib import Path
from typing import Any

from transformers import MixtralConfig

from decoder.models.gguf_file import GgufFile

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 1}


def mixture(**changed: Any) -> Any:
    """A tiny mixture of experts."""
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    return MixtralConfig(**sizes | {"num_attention_heads": 2, "num_key_value_heads": 2} | EXPERTS | changed)


def gguf(tensors: dict[str, int], **values: int) -> GgufFile:
    """A file with tensors of these sizes in bytes, and these entries of its architecture."""
    usual = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 64}
    usual |= {"llama.attention.head_count": 4, "llama.attention.head_count_kv": 2}
    counts = {f"llama.{name}": value for name, value in values.items()}
    return GgufFile(Path("x.gguf"), usual | counts, tensors, in_float32=False, file_bytes=1000)
