"""Description of a model before it is built: architecture, weights and limits, with Hugging Face's field names.

Knows neither files nor modules, and imports no transformers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.windows import FULL, SLIDING, windows_of

Layer = TypeVar("Layer")
FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_parallel_residual")
ROTARY: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
}
"""Supported kinds of rotary positions, with the parameters of each kind. In all kinds, frequencies are independent of
the text's length.
"""


@dataclass(frozen=True)
class Architecture:
    """Architecture with the field names of Hugging Face's configurations, so that it can replace a configuration."""

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
    """Size in tokens of the attention window; None if all layers attend to the whole text."""
    layer_types: tuple[str, ...]
    """Type of each layer; a layer whose window is at least as long as the context has the type full attention."""
    dtype: torch.dtype | None
    """Dtype of the checkpoint; None if the checkpoint states none."""

    @classmethod
    def of(cls, config: Any) -> "Architecture":
        """Architecture from a configuration of a native family."""
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
        """Rotary frequencies, in radians per position, one for each pair of a head's dimensions.

        Computed in float32 on the CPU for every dtype and device, so that rounding is the same as in Hugging Face's
        modules.
        """
        rope = self.rope_parameters
        width = int(self.head_dim * rope.get("partial_rotary_factor", 1.0))
        turns: Tensor = 1.0 / (rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float) / width))
        if rope["rope_type"] == "linear":
            turns /= rope["factor"]
        return _by_wavelength(turns, rope) if rope["rope_type"] == "llama3" else turns


def _by_wavelength(turns: Float[Tensor, "R"], rope: Mapping[str, Any]) -> Float[Tensor, "R"]:
    """Llama 3's frequency scaling: long wavelengths are stretched, short wavelengths are kept, and wavelengths in
    between are interpolated.
    """
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    length = rope["original_max_position_embeddings"]
    waves = 2 * math.pi / turns
    stretched = torch.where(waves > length / low, turns / factor, turns)
    share = (length / waves - low) / (high - low)
    between = (1 - share) * stretched / factor + share * stretched
    return torch.where(~(waves < length / high) * ~(waves > length / low), between, stretched)


@dataclass(frozen=True)
class Source:
    """A model's weights, to be read one by one; all in one dtype and on one device."""

    architecture: Architecture
    weights: Mapping[str, Tensor]
    """Weights by their names in Hugging Face's module; each access may read a file."""
    frequencies: Float[Tensor, "R"]
    """`Architecture.frequencies`, on the weights' device."""
    done: Callable[[str], None] = lambda _: None
    """Function that is called with the name of each layer after the layer was read."""

    def layers(self, prefix: str, read: Callable[[str], Layer]) -> list[Layer]:
        """All layers; `read` makes a layer from the prefix of its weights' names."""
        loaded = []
        for number in range(self.architecture.num_hidden_layers):
            loaded.append(read(f"{prefix}.{number}"))
            self.done(f"{prefix}.{number}")
        return loaded


@dataclass(frozen=True)
class Traits:
    """Sizes, device and weights of a model, known before it is built."""

    layers: int
    """Number of layers."""
    width: int
    """Number of logits per row; may exceed the vocabulary size."""
    context: int
    """Context length in tokens."""
    device: torch.device
    dtype: torch.dtype
    eos: Any
    """Ids of the end-of-text tokens, in the checkpoint's form (one id, a list or None)."""
    skeleton: Callable[[], Any]
    """Makes a Hugging Face module with the model's structure, but without weights."""
    source: Source | None
    """Weights; None if only the model's Hugging Face module can compute its passes."""
    precision: str = ""
    """Quantisation of the weights and dtype of the passes, in words; empty if the weights are not quantised."""
