"""Llama, and the families whose layers are Llama's, as few, large operations.

The norms are folded into the matrices behind them; a layer is one product for [queries | keys | values], one back, one
for [gate | up] and one down.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from decoder.forward.cpu.packed import Linear
from decoder.forward.families.attention import Pass, Rotation, attend, turn
from decoder.forward.families.model import LeanModel
from decoder.forward.families.weights import Arithmetic, Matrix, read_layers, stacked
from decoder.forward.kv_cache import side_by_side


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


def read_llama(module: Any, arithmetic: Arithmetic) -> LeanModel:
    """The weights of a `LlamaForCausalLM`, or of a family with the same layers."""
    config, body = module.config, module.model
    rotation = Rotation(body.rotary_emb, arithmetic.rows)
    norm = Norm((config.hidden_size,), config.rms_norm_eps)
    shape = Shape(config.num_key_value_heads, config.num_attention_heads // config.num_key_value_heads, rotation.width)
    return LeanModel(
        embedding=body.embed_tokens.weight.detach().to(arithmetic.weights),
        layers=read_layers(body.layers, lambda layer: _layer(layer, norm, shape, arithmetic), arithmetic),
        normalise=norm,
        head=Matrix.read(module.lm_head, arithmetic.rows, body.norm).packed(arithmetic),
        rotation=rotation,
        rows=arithmetic.rows,
        heads=shape.heads,
        groups=shape.groups,
        head_width=shape.head,
    )


def _layer(layer: Any, norm: Norm, shape: Shape, arithmetic: Arithmetic) -> LlamaLayer:
    dtype, attention, mlp = arithmetic.rows, layer.self_attn, layer.mlp
    queries = _turned(Matrix.read(attention.q_proj, dtype, layer.input_layernorm), shape.head)
    keys = _turned(Matrix.read(attention.k_proj, dtype, layer.input_layernorm), shape.head)
    values = Matrix.read(attention.v_proj, dtype, layer.input_layernorm)
    gate = Matrix.read(mlp.gate_proj, dtype, layer.post_attention_layernorm)
    up = Matrix.read(mlp.up_proj, dtype, layer.post_attention_layernorm)
    return LlamaLayer(
        norm,
        shape,
        # The scale of the scores is folded into the queries.
        inward=stacked(queries.scaled(shape.head**-0.5), keys, values).packed(arithmetic),
        outward=Matrix.read(attention.o_proj, dtype).packed(arithmetic),
        gate_up=stacked(gate, up).packed(arithmetic),
        down=Matrix.read(mlp.down_proj, dtype).packed(arithmetic),
    )


def _turned(matrix: Matrix, head: int) -> Matrix:
    """Rotated pairs as neighbours, head by head."""
    rows = torch.arange(len(matrix.bias)).view(-1, head)
    return matrix.ordered(rows[:, side_by_side(head)].flatten())
