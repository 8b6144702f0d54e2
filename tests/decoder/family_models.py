"""Tiny models of the families that run without a Hugging Face module, one for each difference between them."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import MistralConfig, Qwen2Config, Qwen3Config

from decoder.forward.families import registry
from decoder.forward.families.native import NativeModel
from decoder.forward.hf import source_of
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import static_forward
from tests import tiny

LLAMA_SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

HALF_WINDOWED = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}


def _rotated(share: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}


def like_llama(kind: Any, **changes: Any) -> Any:
    """Configuration of a family whose layers equal Llama's."""
    shape = {**LLAMA_SHAPE, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 192}
    return kind(**shape | changes)


def _neox(**own: Any) -> Callable[..., Any]:
    return lambda **changes: tiny.FAMILIES["neox"](**own | changes)


def _llama(**own: Any) -> Callable[..., Any]:
    return lambda **changes: tiny.FAMILIES["llama"](**own | changes)


MODELS: dict[str, Callable[..., Any]] = {
    "neox": _neox(),
    "neox, one after the other": _neox(use_parallel_residual=False),
    "neox without biases, tied": _neox(attention_bias=False, tie_word_embeddings=True),
    "neox, all rotated": _neox(rope_parameters=_rotated(1.0), hidden_act="gelu_new"),
    "neox, odd heads": _neox(hidden_size=60, num_attention_heads=3, rope_parameters=_rotated(0.2)),
    "llama": _llama(),
    "llama, one head for all": _llama(num_key_value_heads=1),
    "llama without groups, tied": _llama(num_key_value_heads=4, tie_word_embeddings=True),
    "llama with biases and wide heads": _llama(attention_bias=True, mlp_bias=True, head_dim=12),
    "llama, wide layers": _llama(hidden_size=160, intermediate_size=360),
    "llama, positions scaled": _llama(rope_parameters=SCALED),
    "llama 3": _llama(rope_parameters=LLAMA3),
    "mistral": lambda **changes: like_llama(MistralConfig, **{"sliding_window": None} | changes),
    "mistral, windows of 8": lambda **changes: like_llama(MistralConfig, **{"sliding_window": 8} | changes),
    "qwen2": lambda **changes: like_llama(Qwen2Config, **{"use_sliding_window": False} | changes),
    "qwen2, windows in half of its layers": lambda **changes: like_llama(Qwen2Config, **HALF_WINDOWED | changes),
}
"""Makers of configurations, by family and special feature."""
COMPILED: dict[str, Callable[..., Any]] = {
    "qwen3": lambda **changes: like_llama(Qwen3Config, **{"head_dim": 12} | changes),
    "qwen3, windows in half of its layers": lambda **changes: like_llama(
        Qwen3Config, **HALF_WINDOWED | {"head_dim": 16, "attention_bias": True} | changes
    ),
}
"""The same of families that compiled passes alone compute natively."""


def made(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A tiny module with random norms and biases, so that they change the logits."""
    module = tiny.build((MODELS | COMPILED)[name](), seed=1)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.3)
    return module.to(dtype)


def laid_out_anew(module: Any) -> Any:
    """The module, with each weight copied to memory of its own.

    Transformers leaves weights at arbitrary offsets of a mapped file, and libraries sum in an order that depends on the
    address.
    """
    for weight in module.parameters():
        weight.data = weight.data.clone()
    return module


def native_of(module: Any) -> NativeModel:
    """The native model of a module in torch, as it runs on a CPU without compiled passes."""
    source = source_of(module)
    assert source is not None
    dtype = module.dtype if module.dtype.itemsize > 2 else torch.float32
    return registry.native_model(source, dtype, module.config.max_position_embeddings)


def static_of(module: Any) -> NativeModel:
    """The native model of a module as it runs on a device, in the module's dtype."""
    form = static_forward(LanguageModel.of_module(module, "tiny"))
    assert isinstance(form, NativeModel)
    return form
