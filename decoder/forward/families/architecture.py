"""Description of a model before it runs: architecture by the field names of configurations, weights, limits.

Knows neither files nor modules, and imports no transformers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Layer = TypeVar("Layer")
FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_parallel_residual")
ROTARY: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
}
"""Kinds of rotary positions that do not depend on the length of the text, and the parameters of each."""
NO_LIMIT = 1 << 20
"""Context length of a model whose configuration names none, in tokens."""
LENGTHS = ("max_position_embeddings", "max_target_positions", "max_seq_len")
"""Names of the context length in configurations; the first one present counts."""


def longest_text(config: Any) -> int:
    """Context length with unchanged rotary positions, in tokens.

    Beyond the original length, longrope rotates all positions by other frequencies, also those of cached keys; the text
    would then depend on the number of rows in each pass.
    """
    named = next((length for name in LENGTHS if (length := getattr(config, name, None))), NO_LIMIT)
    original = getattr(config, "original_max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) or {}
    by_layers = [rotary, *(inner for inner in rotary.values() if isinstance(inner, dict))]
    switching = [each for each in by_layers if each.get("rope_type") == "longrope"]
    return min([named, *(each.get("original_max_position_embeddings") or original or named for each in switching)])


@dataclass(frozen=True)
class Architecture:
    """Architecture by the field names of Hugging Face's configurations, so that it can stand in for one."""

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
    dtype: torch.dtype | None
    """Dtype of the checkpoint; None where it names none."""

    @classmethod
    def of(cls, config: Any) -> "Architecture":
        """Architecture of a configuration of a fast family."""
        fields: dict[str, Any] = {name: getattr(config, name, None) for name in cls.__dataclass_fields__}
        heads = config.num_attention_heads
        return cls(
            **fields
            | {name: bool(fields[name]) for name in FLAGS}
            | {
                "num_key_value_heads": fields["num_key_value_heads"] or heads,
                "head_dim": fields["head_dim"] or config.hidden_size // heads,
                "norm_eps": config.layer_norm_eps if hasattr(config, "layer_norm_eps") else config.rms_norm_eps,
            }
        )

    @property
    def frequencies(self) -> Float[Tensor, "R"]:
        """Rotary frequencies, in radians per position, one for each pair of a head's dimensions.

        Rounded as Hugging Face rounds them: computed in float32 on the CPU, whatever the model's dtype and device.
        """
        rope = self.rope_parameters
        width = int(self.head_dim * rope.get("partial_rotary_factor", 1.0))
        turns: Tensor = 1.0 / (rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float) / width))
        if rope["rope_type"] == "linear":
            turns /= rope["factor"]
        return _by_wavelength(turns, rope) if rope["rope_type"] == "llama3" else turns


def _by_wavelength(turns: Float[Tensor, "R"], rope: Mapping[str, Any]) -> Float[Tensor, "R"]:
    """Llama 3's scaling: long wavelengths are stretched, short ones stay, those between are interpolated."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    length = rope["original_max_position_embeddings"]
    waves = 2 * math.pi / turns
    stretched = torch.where(waves > length / low, turns / factor, turns)
    share = (length / waves - low) / (high - low)
    between = (1 - share) * stretched / factor + share * stretched
    return torch.where(~(waves < length / high) * ~(waves > length / low), between, stretched)


@dataclass(frozen=True)
class Source:
    """Weights of a model before they are read; all in one dtype and on one device."""

    architecture: Architecture
    weights: Mapping[str, Tensor]
    """Weights by their names in Hugging Face's module; each lookup may read a file."""
    frequencies: Float[Tensor, "R"]
    """See `Architecture.frequencies`; on the weights' device."""
    done: Callable[[str], None] = lambda _: None
    """Called with the name of each layer after it was read."""

    def layers(self, prefix: str, read: Callable[[str], Layer]) -> list[Layer]:
        """All layers, read one by one by their names."""
        loaded = []
        for number in range(self.architecture.num_hidden_layers):
            loaded.append(read(f"{prefix}.{number}"))
            self.done(f"{prefix}.{number}")
        return loaded


@dataclass(frozen=True)
class Traits:
    """Sizes, device and weights of a model before it runs."""

    layers: int
    """Number of layers."""
    width: int
    """Width of the logits; may exceed the vocabulary."""
    context: int
    """Context length in tokens."""
    device: torch.device
    dtype: torch.dtype
    eos: Any
    """End-of-text tokens, as the checkpoint names them."""
    skeleton: Callable[[], Any]
    """Makes a Hugging Face module without weights that has the model's parts and shapes."""
    source: Source | None
    """Weights; None for a family that runs only by its module."""
