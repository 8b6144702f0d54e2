"""Memory that a model takes, computed from its configuration alone: its weights, and the KV cache of a text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from decoder.forward.cache_bytes import cache_bytes
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import weight_bytes
from decoder.forward.windows import longest_text, windows_of
from decoder.models.quantisation import Quantisation
from decoder.system.deferred import imported


@dataclass(frozen=True)
class Memory:
    weights_bytes: int
    token_bytes: int
    """Keys and values of one token, in all layers."""
    context: int
    """In tokens."""
    windows: tuple[int, ...] = ()
    """Attention windows that are shorter than the context, ascending."""
    ring_bytes: int = 0
    """Of the KV cache of a text as long as the context, if layers with windows kept only the rows in them."""

    @property
    def cache_bytes(self) -> int:
        """Of the KV cache of a text as long as the context."""
        return self.token_bytes * self.context


def memory_of(config: Any, dtype: torch.dtype, quantised: Quantisation | None = None) -> Memory:
    """Memory of a model; reads no weights. The scales of weights that stay quantised are not counted."""
    hf = None if isinstance(config, Architecture) else imported("decoder.forward.hf")
    known = hf.architecture_of(config) if hf else config
    packed_bits = quantised.bits if quantised and quantised.packed else None
    if isinstance(known, Architecture) and packed_bits is None:
        weights = weight_bytes(known, dtype)
    else:
        assert hf is not None, "a quantised or unknown model needs a configuration of transformers"  # noqa: S101 - for mypy
        weights = _weights_bytes(hf.skeleton(config, dtype), dtype, packed_bits)
    text = config if isinstance(config, Architecture) else config.get_text_config()
    context = longest_text(text)
    _, ring_bytes = cache_bytes(text, context, dtype.itemsize)
    token_bytes, _ = cache_bytes(text, 1, dtype.itemsize)
    windows = tuple(sorted(set(windows_of(text).sizes.values())))
    return Memory(weights, token_bytes, context, windows, ring_bytes)


def _weights_bytes(module: Any, dtype: torch.dtype, bits: int | None) -> int:
    width = bits_per_number(module, dtype, bits)
    return sum(weight.numel() * width(weight) // 8 for weight in module.parameters())


def bits_per_number(module: Any, dtype: torch.dtype, bits: int | None) -> Callable[[Tensor], int]:
    """Number of bits of a number in a weight: those of `dtype`, or `bits`, if given, in matrices other than embedding
    and head.
    """
    if bits is None:
        return lambda _: 8 * dtype.itemsize
    ends = [part.weight for part in (module.get_input_embeddings(), module.get_output_embeddings()) if part is not None]
    whole = {id(weight) for weight in (*ends, *(weight for weight in module.parameters() if weight.dim() < 2))}
    return lambda weight: 8 * dtype.itemsize if id(weight) in whole else bits
