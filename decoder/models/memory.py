"""Memory that a model takes, from its configuration alone: its weights, and the KV cache of a text."""

from dataclasses import dataclass
from typing import Any

import torch

from decoder.forward.cache_bytes import cache_bytes
from decoder.forward.families.architecture import Architecture, longest_text
from decoder.forward.families.registry import weight_bytes
from decoder.forward.windows import windows_of
from decoder.system.deferred import imported


@dataclass(frozen=True)
class Memory:
    """Memory of a model in one dtype."""

    weights_bytes: int
    token_bytes: int
    """Size of the keys and values of one token, in all layers."""
    context: int
    """Context length, in tokens."""
    windows: tuple[int, ...] = ()
    """Sizes of the attention windows that are shorter than the context, in tokens, ascending."""
    ring_bytes: int = 0
    """Size of the KV cache of such a text if layers with windows kept only a ring buffer of their window's size."""

    @property
    def cache_bytes(self) -> int:
        """Size of the KV cache of a text as long as the context."""
        return self.token_bytes * self.context


def memory_of(config: Any, dtype: torch.dtype) -> Memory:
    """Memory of a model; reads no weights."""
    hf = None if isinstance(config, Architecture) else imported("decoder.forward.hf")
    known = hf.architecture_of(config) if hf else config
    if isinstance(known, Architecture):
        weights = weight_bytes(known, dtype)
    else:
        assert hf is not None, "an unknown architecture is a configuration of transformers"  # noqa: S101 - for mypy
        weights = dtype.itemsize * sum(weight.numel() for weight in hf.skeleton(config, dtype).parameters())
    text = config if isinstance(config, Architecture) else config.get_text_config()
    context = longest_text(text)
    _, ring_bytes = cache_bytes(text, context, dtype.itemsize)
    token_bytes, _ = cache_bytes(text, 1, dtype.itemsize)
    windows = () if isinstance(text, Architecture) else tuple(sorted(set(windows_of(text).sizes.values())))
    return Memory(weights, token_bytes, context, windows, ring_bytes)
