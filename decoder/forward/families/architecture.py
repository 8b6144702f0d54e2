"""Description of a model before it is built, with Hugging Face's field names. Does not import transformers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.layer_kinds import FULL, SLIDING, windows_of

Layer = TypeVar("Layer")
FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_parallel_residual")
ROTARY: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
}
"""Supported types of RoPE with their parameters; their frequencies do not depend on the text's length."""


@dataclass(frozen=True)
class Architecture:
    """Configuration of a model of a native family, usable in place of Hugging Face's configuration."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    hidden_act: str
    max_position_embeddings: int
    norm_eps: float
    rope_parameters: Mapping[str, Any]
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    use_parallel_residual: bool
    sliding_window: int | None
    """Size of the window in tokens; None if all layers attend to the whole text."""
    layer_types: tuple[str, ...]
    """Attention type of each layer; a window at least as long as the context counts as full attention."""
    dtype: torch.dtype | None
    """None if the checkpoint states no dtype."""

    @classmethod
    def of(cls, config: Any) -> "Architecture":
        fields: dict[str, Any] = {name: getattr(config, name, None) for name in cls.__dataclass_fields__}
        heads, windows = config.num_attention_heads, windows_of(config)
        return cls(
            **fields
            | {name: bool(fields[name]) for name in FLAGS}
            | {
                "num_key_value_heads": fields["num_key_value_heads"] or heads,
                "head_dim": fields["head_dim"] or config.hidden_size // heads,
                "norm_eps": config.layer_norm_eps if hasattr(config, "layer_norm_eps") else config.rms_norm_eps,
                "sliding_window": windows.sizes.get(SLIDING),
                "layer_types": tuple(kind if kind in windows.sizes else FULL for kind in windows.layers),
            }
        )

    @property
    def frequencies(self) -> Float[Tensor, "R"]:
        """RoPE frequencies in radians per position, computed in float32 on the CPU to round as Hugging Face does."""
        rope = self.rope_parameters
        width = int(self.head_dim * rope.get("partial_rotary_factor", 1.0))
        frequencies: Tensor = 1.0 / (rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float) / width))
        if rope["rope_type"] == "linear":
            frequencies /= rope["factor"]
        return _by_wavelength(frequencies, rope) if rope["rope_type"] == "llama3" else frequencies


def _by_wavelength(frequencies: Float[Tensor, "R"], rope: Mapping[str, Any]) -> Float[Tensor, "R"]:
    """Llama 3's scaling: long wavelengths are stretched, short ones kept, and those in between interpolated."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    length = rope["original_max_position_embeddings"]
    waves = 2 * math.pi / frequencies
    stretched = torch.where(waves > length / low, frequencies / factor, frequencies)
    share = (length / waves - low) / (high - low)
    between = (1 - share) * stretched / factor + share * stretched
    return torch.where(~(waves < length / high) * ~(waves > length / low), between, stretched)


@dataclass(frozen=True)
class ModelWeights:
    """A model's weights, all in one dtype and on one device."""

    architecture: Architecture
    weights: Mapping[str, Tensor]
    """Weights by their names in Hugging Face's module; each access may read a file."""
    frequencies: Float[Tensor, "R"]
    """`Architecture.frequencies`, on the weights' device."""
    done: Callable[[str], None] = lambda _: None
    """Called with the name of each layer after the layer was read."""

    def layers(self, prefix: str, read: Callable[[str], Layer]) -> list[Layer]:
        """All layers; `read` makes each one from the prefix of its weights' names."""
        loaded = []
        for number in range(self.architecture.num_hidden_layers):
            loaded.append(read(f"{prefix}.{number}"))
            self.done(f"{prefix}.{number}")
        return loaded


@dataclass(frozen=True)
class Traits:
    """Properties of a model that are known before it is built."""

    layers: int
    width: int
    """Number of logits per row; may exceed the vocabulary size."""
    context: int
    """Length of the longest text, in tokens."""
    device: torch.device
    dtype: torch.dtype
    eos: Any
    """End-of-text tokens as the checkpoint states them: one id, a list of ids, or None."""
    skeleton: Callable[[], Any]
    """Makes a Hugging Face module without weights."""
    source: ModelWeights | None
    """None if only the model's Hugging Face module can compute its passes."""
    precision: str = ""
    """Quantisation of the weights and dtype of the passes, in words; empty if the weights are not quantised."""
