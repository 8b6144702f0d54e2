"""Base classes of drafting heads, and a layer with the parameter names of published checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.families.architecture import Architecture
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import NEVER
from decoder.forward.protocol import Ints, Mask


class StatesReader(ABC):
    """A drafting head: a network that drafts from the layer states of one target, in place of a draft model."""

    name: str
    """Hub id or folder name of the head; "mtp" for the target's own MTP layer, as in `--draft mtp`."""
    kind: str
    """Kind of the head in words, for example "EAGLE-3 head"."""
    target_layers: tuple[int, ...]
    """Numbers of the target layers whose inputs the head reads, ascending; see `LayerStates`."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...


class GuidedHead(StatesReader):
    """A head that drafts level by level: an EAGLE-3 head, or the target's own MTP layer.

    A row combines a token with the hidden state at the position before the token. For tokens of the text, this state is
    computed from the target's states; for drafted tokens, it is the head's own output.
    """

    @abstractmethod
    def new_cache(self, capacity: int) -> KvCache: ...

    @abstractmethod
    def no_states(self, count: int) -> Float[Tensor, "N Y"]:
        """Zeros that replace the target's states at `count` tokens."""

    def no_hidden(self, count: int) -> Float[Tensor, "N X"]:
        """Zeros that replace the hidden states of `count` rows."""
        return self.no_states(count)

    @abstractmethod
    def fused(self, states: Float[Tensor, "N Y"]) -> Float[Tensor, "N X"]:
        """Hidden states for the tokens of a text, each computed from the concatenated target states at one token."""

    @abstractmethod
    def forward(
        self, cache: KvCache, tokens: Ints, hidden: Float[Tensor, "N X"], positions: Ints, visible: Mask
    ) -> Float[Tensor, "N X"]:
        """Outputs for N new rows, which are appended to the cache.

        Args:
            cache: The head's KV cache; all of its committed rows are visible to every new row.
            tokens: Token ids of the new rows.
            hidden: Hidden state at the position before each token: `fused` target states, or `carried` rows of the
                head.
            positions: Text position of each hidden state: the position of the row's token minus 1; siblings have the
                same position.
            visible: Shape (N, M): which of the last M rows, drafted and new, each new row attends to.
        """

    def carried(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Hidden states for the input of drafted rows, computed from the outputs at the parents of these rows."""
        return outputs

    @abstractmethod
    def logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        """Logits of the token after each row, from the rows' outputs; columns are the target's token ids."""


OFFSETS = "d2t"
"""Name of the tensor of differences between token ids; all other tensors contain floating-point numbers."""
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries, keys, values) -> attended values; shapes (..., H, N, D). Keys and values may have fewer heads than queries.
The function also stores the keys and values.
"""


class Rotation(NamedTuple):
    """RoPE: cosines and sines of the rotation angles at N positions."""

    cosines: Float[Tensor, "N R"]
    sines: Float[Tensor, "N R"]

    @classmethod
    def at(cls, positions: Int[Tensor, "N"], frequencies: Float[Tensor, "R"], dtype: torch.dtype) -> "Rotation":
        """Computes the angles in float32."""
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
        wide = rows.float() if rows.dtype.itemsize < torch.float32.itemsize else rows
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return scaled.to(rows.dtype) * self.weight


class SelfAttention(nn.Module):
    """The attention of a Llama layer, or with `normed` queries and keys, of a Qwen3 layer."""

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

    def forward(self, rows: Float[Tensor, "*B N Z"], rotation: Rotation, attend: Attend) -> Float[Tensor, "*B N X"]:
        queries = rotation.of(self.q_norm(self._split(self.q_proj(rows))))
        attended = attend(queries, *self.keys_and_values(rows, rotation))
        output: Tensor = self.o_proj(attended.transpose(-2, -3).flatten(-2))
        return output

    def keys_and_values(
        self, rows: Float[Tensor, "*B N Z"], rotation: Rotation
    ) -> tuple[Float[Tensor, "*B H N D"], Float[Tensor, "*B H N D"]]:
        """The rows' keys, after rotation, and the rows' values."""
        return rotation.of(self.k_norm(self._split(self.k_proj(rows)))), self._split(self.v_proj(rows))

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
        down: Tensor = self.down_proj(functional.silu(self.gate_proj(rows)) * self.up_proj(rows))
        return down


class Layer(nn.Module):
    """A Llama layer, or with `normed` queries and keys a Qwen3 layer; its attention reads rows of width `given`."""

    def __init__(self, arch: Architecture, given: int, *, normed: bool) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (
            RmsNorm(arch.hidden_size, arch.norm_eps) for _ in range(2)
        )
        self.self_attn = SelfAttention(arch, given, normed=normed)
        self.mlp = Mlp(arch)

    def forward(
        self, rows: Float[Tensor, "*B N X"], given: Float[Tensor, "*B N Z"], rotation: Rotation, attend: Attend
    ) -> Float[Tensor, "*B N X"]:
        rows = rows + self.self_attn(given, rotation, attend)
        output: Tensor = rows + self.mlp(self.post_attention_layernorm(rows))
        return output


@dataclass(frozen=True)
class Shape(ABC):
    """Configuration of an EAGLE-3, P-EAGLE or DFlash head."""

    layer: Architecture
    """Architecture of a layer; its `vocab_size` is the target's."""
    draft_vocabulary: int
    """Number of tokens that the head can predict."""
    target_width: int
    """Width of a hidden row of the target."""
    target_layers: tuple[int, ...] | None = field(default=None, kw_only=True)
    """Numbers of the target layers that the head reads, ascending; if None, `usual_layers` chooses them."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Name of the kind of head for messages, such as EAGLE-3 head."""

    @abstractmethod
    def usual_layers(self, layers: int) -> tuple[int, ...]:
        """Layers that the head reads in a target with `layers` layers if its configuration lists none."""

    def layers_of(self, layers: int) -> tuple[int, ...]:
        return self.target_layers or self.usual_layers(layers)

    @property
    def states(self) -> int:
        """Number of target states, one for each target layer, that are combined into one hidden row."""
        return len(self.layers_of(0))


class HeadModule(nn.Module, StatesReader):
    """Common part of EAGLE-3, P-EAGLE and DFlash heads, with weights on one device and in one dtype."""

    d2t: Int[Tensor, "D"]
    """For each token of the head's vocabulary, its id in the target's vocabulary minus its id in the head's."""
    frequencies: Float[Tensor, "R"]
    tokens: Int[Tensor, "D"] | None
    """For each token of the head's vocabulary, its id in the target's vocabulary; None if the ids are the same."""

    def __init__(self, name: str, shape: Shape, target_layers: Sequence[int]) -> None:
        super().__init__()
        self.name, self.kind, self.target_layers = name, shape.kind, tuple(target_layers)
        layer, draft_vocabulary = shape.layer, shape.draft_vocabulary
        self.embed_tokens = nn.Embedding(layer.vocab_size, layer.hidden_size)
        """The head's own embedding, or the target's."""
        self.fc = nn.Linear(shape.states * shape.target_width, layer.hidden_size, bias=False)
        self.norm = RmsNorm(layer.hidden_size, layer.norm_eps)
        self.lm_head = nn.Linear(layer.hidden_size, draft_vocabulary, bias=False)
        self.register_buffer("d2t", torch.zeros(draft_vocabulary, dtype=torch.long))
        self.register_buffer("tokens", None, persistent=False)
        # Heads are built on the meta device, so that weights are not initialised; but frequencies must have values.
        with torch.device("cpu"):
            self.register_buffer("frequencies", layer.frequencies, persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    def rotation(self, positions: Int[Tensor, "N"]) -> Rotation:
        return Rotation.at(positions, self.frequencies, self.dtype)

    def over_target_ids(self, own: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Converts logits over the head's own token ids to logits over the target's token ids."""
        if self.tokens is None:
            return own
        return own.new_full((len(own), self.embed_tokens.num_embeddings), NEVER).index_copy_(1, self.tokens, own)
