"""Modules that all drafting heads share, with the parameter names of published checkpoints; they run on any device.

Knows neither caches nor texts: a function that is passed in stores keys and values, and computes attention.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.families.architecture import Architecture
from decoder.forward.fitted import NEVER

OFFSETS = "d2t"
"""Name of the tensor of differences between token ids; all other tensors contain floating-point numbers."""


class Rotation(NamedTuple):
    """Cosines and sines of the angles by which heads at N positions are rotated."""

    cosines: Float[Tensor, "N R"]
    sines: Float[Tensor, "N R"]

    @classmethod
    def at(cls, positions: Int[Tensor, "N"], frequencies: Float[Tensor, "R"], dtype: torch.dtype) -> "Rotation":
        """Rotation to these positions; the angles are in float32."""
        angles = positions.float()[:, None] * frequencies
        return cls(angles.cos().to(dtype), angles.sin().to(dtype))

    def of(self, heads: Float[Tensor, "*B H N D"]) -> Float[Tensor, "*B H N D"]:
        """Rotated heads; dimension i of a head's first half and dimension i of its second half form a pair."""
        one, other = heads.chunk(2, -1)
        return torch.cat([one * self.cosines - other * self.sines, other * self.cosines + one * self.sines], -1)


class RmsNorm(nn.Module):
    """A root-mean-square norm; the mean is computed in float32 or wider."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, rows: Float[Tensor, "*N X"]) -> Float[Tensor, "*N X"]:
        """Normalised rows, scaled by the weight in the rows' dtype."""
        wide = rows.float() if rows.dtype.itemsize < torch.float32.itemsize else rows
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return scaled.to(rows.dtype) * self.weight


class SelfAttention(nn.Module):
    """Projections of a layer's attention: queries, keys and values of Llama, or of Qwen3 with `normed` heads."""

    def __init__(self, arch: Architecture, given: int, *, normed: bool) -> None:
        super().__init__()
        self.head_dim = arch.head_dim
        asking, kept = (heads * arch.head_dim for heads in (arch.num_attention_heads, arch.num_key_value_heads))
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(given, columns, arch.attention_bias) for columns in (asking, kept, kept)
        )
        self.o_proj = nn.Linear(asking, arch.hidden_size, arch.attention_bias)
        self.q_norm, self.k_norm = (
            RmsNorm(arch.head_dim, arch.norm_eps) if normed else nn.Identity() for _ in range(2)
        )

    def queries(self, rows: Float[Tensor, "*B N Z"], rotation: Rotation) -> Float[Tensor, "*B H N D"]:
        """Rotated queries of rows."""
        return rotation.of(self.q_norm(self._split(self.q_proj(rows))))

    def keys_and_values(
        self, rows: Float[Tensor, "*B N Z"], rotation: Rotation
    ) -> tuple[Float[Tensor, "*B H N D"], Float[Tensor, "*B H N D"]]:
        """Rotated keys of rows, and their values."""
        return rotation.of(self.k_norm(self._split(self.k_proj(rows)))), self._split(self.v_proj(rows))

    def merged(self, heads: Float[Tensor, "*B H N D"]) -> Float[Tensor, "*B N X"]:
        """Output rows of the attended values."""
        rows: Tensor = self.o_proj(heads.transpose(-2, -3).flatten(-2))
        return rows

    def _split(self, columns: Float[Tensor, "*B N Y"]) -> Float[Tensor, "*B H N D"]:
        split: Tensor = columns.unflatten(-1, (-1, self.head_dim)).transpose(-2, -3)
        return split


class Mlp(nn.Module):
    """The SwiGLU MLP of Llama and Qwen3 layers."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        width, inner = arch.hidden_size, arch.intermediate_size
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, rows: Float[Tensor, "*N X"]) -> Float[Tensor, "*N X"]:
        """The down projection of silu(gate) * up."""
        down: Tensor = self.down_proj(functional.silu(self.gate_proj(rows)) * self.up_proj(rows))
        return down


class HeadModule(nn.Module):
    """A drafting head with its weights, all on one device and in one dtype: the part that every kind has."""

    d2t: Int[Tensor, "D"]
    """For each token of the head's vocabulary, how much must be added to its id to get the target's id."""
    frequencies: Float[Tensor, "R"]
    """Rotary frequencies of the layers."""
    tokens: Int[Tensor, "D"] | None
    """For each token of the head's vocabulary, its id in the target's vocabulary; None if the ids are the same."""

    def __init__(self, name: str, kind: str, layer: Architecture, draft_vocabulary: int, states: int) -> None:
        """`states` is the width of the concatenated target states; `layer` has the target's vocabulary."""
        super().__init__()
        self.name = name
        """Hub id or folder name."""
        self.kind = kind
        """Kind of the head in words."""
        self.embed_tokens = nn.Embedding(layer.vocab_size, layer.hidden_size)
        """The head's own embedding, or the target's."""
        self.fc = nn.Linear(states, layer.hidden_size, bias=False)
        self.norm = RmsNorm(layer.hidden_size, layer.norm_eps)
        self.lm_head = nn.Linear(layer.hidden_size, draft_vocabulary, bias=False)
        self.register_buffer("d2t", torch.zeros(draft_vocabulary, dtype=torch.long))
        self.register_buffer("tokens", None, persistent=False)
        # A head is built on the meta device, so that its weights are not initialised before they are read.
        with torch.device("cpu"):
            self.register_buffer("frequencies", layer.frequencies, persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the head's passes."""
        return self.embed_tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        """Device of the head's weights."""
        return self.embed_tokens.weight.device

    def rotation(self, positions: Int[Tensor, "N"]) -> Rotation:
        """Rotation to these positions, in the head's dtype."""
        return Rotation.at(positions, self.frequencies, self.dtype)

    def over_target_ids(self, own: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Converts logits over the head's own token ids to logits over the target's token ids."""
        if self.tokens is None:
            return own
        return own.new_full((len(own), self.embed_tokens.num_embeddings), NEVER).index_copy_(1, self.tokens, own)
