"""What a model of a fast family is, in the words of its configuration, and how far its heads are rotated.

Knows neither files nor modules.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_parallel_residual")
ROTARY: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
}
"""Kinds of rotary positions that do not depend on the length of the text, and the numbers of each."""


@dataclass(frozen=True)
class Architecture:
    """Named as in Hugging Face's configurations, so that whoever asks one of them may be given this."""

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
    """Of the checkpoint, if it says so."""

    @classmethod
    def of(cls, config: Any) -> "Architecture":
        """That of a configuration of a fast family."""
        found: dict[str, Any] = {name: getattr(config, name, None) for name in cls.__dataclass_fields__}
        heads = config.num_attention_heads
        return cls(
            **found
            | {name: bool(found[name]) for name in FLAGS}
            | {
                "num_key_value_heads": found["num_key_value_heads"] or heads,
                "head_dim": found["head_dim"] or config.hidden_size // heads,
                "norm_eps": config.layer_norm_eps if hasattr(config, "layer_norm_eps") else config.rms_norm_eps,
            }
        )

    @property
    def frequencies(self) -> Float[Tensor, "R"]:
        """By how much each pair of a head's dimensions turns from one position to the next, as Hugging Face rounds it.

        Computed in float32 on the CPU, whatever the model computes in, and wherever.
        """
        rope = self.rope_parameters
        width = int(self.head_dim * rope.get("partial_rotary_factor", 1.0))
        turns: Tensor = 1.0 / (rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float) / width))
        if rope["rope_type"] == "linear":
            turns /= rope["factor"]
        return _by_wavelength(turns, rope) if rope["rope_type"] == "llama3" else turns


def _by_wavelength(turns: Float[Tensor, "R"], rope: Mapping[str, Any]) -> Float[Tensor, "R"]:
    """Llama 3's: long waves are stretched, short ones stay, and those between are something between."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    length = rope["original_max_position_embeddings"]
    waves = 2 * math.pi / turns
    stretched = torch.where(waves > length / low, turns / factor, turns)
    share = (length / waves - low) / (high - low)
    between = (1 - share) * stretched / factor + share * stretched
    return torch.where(~(waves < length / high) * ~(waves > length / low), between, stretched)
