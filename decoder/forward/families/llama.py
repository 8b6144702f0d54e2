"""Llama, and the families whose layers are Llama's, as few, large operations.

The norms are folded into the matrices behind them; a layer is one product for [queries | keys | values], one back, one
for [gate | up] and one down.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from decoder.forward.cpu.packed import Linear
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.attention import Pass, Rotation, attend, turn
from decoder.forward.families.model import LeanModel
from decoder.forward.families.weights import Arithmetic, Matrix, Shapes, Source, stacked
from decoder.forward.kv_cache import side_by_side

BODY = "model"
"""What Hugging Face calls all but the head."""
EMBEDDING = f"{BODY}.embed_tokens"


@dataclass(frozen=True)
class Norm:
    """A root-mean-square norm without its factors."""

    shape: tuple[int]
    epsilon: float

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Rows of mean square 1."""
        if rows.dtype is torch.float64:
            # Hugging Face computes this norm in float32, whatever the model's dtype.
            single = rows.float()
            return (single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + self.epsilon)).double()
        return torch.rms_norm(rows, self.shape, None, self.epsilon)


@dataclass(frozen=True)
class Shape:
    """What a layer's products look like."""

    heads: int
    """Key-value heads."""
    groups: int
    """Query heads of one key-value head."""
    head: int
    """Width of one head."""


@dataclass(frozen=True)
class LlamaLayer:
    """y = x + attention(norm(x)), then y + down(silu(gate(norm(y))) * up(norm(y)))."""

    norm: Norm
    shape: Shape
    inward: Linear
    outward: Linear
    gate_up: Linear
    down: Linear

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        """See `Layer`."""
        rows = self.outward.added_to(rows, self._attended(self.inward(self.norm(rows)), given, index))
        gate, up = self.gate_up(self.norm(rows)).chunk(2, -1)
        return self.down.added_to(rows, functional.silu(gate).mul_(up))

    def _attended(self, product: Float[Tensor, "N Y"], given: Pass, index: int) -> Float[Tensor, "N Y"]:
        shape, count = self.shape, len(product)
        queries = shape.heads * shape.groups
        rows = product.to(given.rotation.real.dtype).view(count, 1, queries + 2 * shape.heads, shape.head)
        turn(rows[:, :, : queries + shape.heads], given, shape.head)
        keys_values = rows[:, 0, queries:].view(count, 2, shape.heads, shape.head)
        given.new[index].copy_(keys_values.permute(1, 2, 0, 3))
        asking = rows[:, 0, :queries].view(count, shape.heads, shape.groups, shape.head).permute(1, 2, 0, 3)
        found = attend(asking.reshape(shape.heads, -1, shape.head), given, index)
        found = found.view(shape.heads, shape.groups, count, shape.head).permute(2, 0, 1, 3)
        return found.reshape(count, -1).to(product.dtype)


def read_llama(source: Source, arithmetic: Arithmetic) -> LeanModel:
    """A `LlamaForCausalLM`, or a model of a family with the same layers."""
    look, weights = source.architecture, source.weights
    rotation = Rotation(source.frequencies, arithmetic.rows)
    norm = Norm((look.hidden_size,), look.norm_eps)
    shape = Shape(look.num_key_value_heads, look.num_attention_heads // look.num_key_value_heads, rotation.width)
    return LeanModel(
        embedding=weights[f"{EMBEDDING}.weight"].detach().to(arithmetic.weights),
        layers=source.layers(f"{BODY}.layers", lambda at: _layer(weights, at, norm, shape, arithmetic)),
        normalise=norm,
        head=Matrix.read(weights, "lm_head", arithmetic.rows, f"{BODY}.norm").packed(arithmetic),
        rotation=rotation,
        rows=arithmetic.rows,
        heads=shape.heads,
        groups=shape.groups,
        head_width=shape.head,
    )


def outer_shapes(look: Architecture) -> Shapes:
    """Weights beside the layers."""
    words = (look.vocab_size, look.hidden_size)
    return {f"{EMBEDDING}.weight": words, f"{BODY}.norm.weight": words[1:], "lm_head.weight": words}


def layer_shapes(look: Architecture) -> Shapes:
    """Weights of one layer."""
    width, inner = look.hidden_size, look.intermediate_size
    queries, keys = (heads * look.head_dim for heads in (look.num_attention_heads, look.num_key_value_heads))
    matrices = {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    biased = {name for name in matrices if (look.mlp_bias if name.startswith("mlp") else look.attention_bias)}
    if look.model_type == "qwen2":
        biased = {f"self_attn.{part}_proj" for part in "qkv"}
    return (
        {f"{name}.weight": shape for name, shape in matrices.items()}
        | {f"{name}.bias": matrices[name][:1] for name in biased}
        | dict.fromkeys(("input_layernorm.weight", "post_attention_layernorm.weight"), (width,))
    )


def _layer(weights: Mapping[str, Tensor], at: str, norm: Norm, shape: Shape, arithmetic: Arithmetic) -> LlamaLayer:
    def read(name: str, before: str | None = None) -> Matrix:
        return Matrix.read(weights, f"{at}.{name}_proj", arithmetic.rows, before and f"{at}.{before}_layernorm")

    queries, keys, values = (read(f"self_attn.{part}", "input") for part in "qkv")
    gate, up = (read(f"mlp.{part}", "post_attention") for part in ("gate", "up"))
    return LlamaLayer(
        norm,
        shape,
        # The scale of the scores is folded into the queries.
        inward=stacked(_turned(queries, shape.head).scaled(shape.head**-0.5), _turned(keys, shape.head), values).packed(
            arithmetic
        ),
        outward=read("self_attn.o").packed(arithmetic),
        gate_up=stacked(gate, up).packed(arithmetic),
        down=read("mlp.down").packed(arithmetic),
    )


def _turned(matrix: Matrix, head: int) -> Matrix:
    """Rotated pairs as neighbours, head by head."""
    rows = torch.arange(len(matrix.bias)).view(-1, head)
    return matrix.ordered(rows[:, side_by_side(head)].flatten())
