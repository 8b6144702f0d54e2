"""GPT-NeoX (Pythia's architecture) as few, large operations.

Both layer norms are folded into the matrices behind them. With a parallel residual one normalised row serves attention
and MLP, so a layer is one product for [keys | values | queries | mlp] and one for [attention | mlp]. Where the MLP
follows attention, each has two of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from decoder.forward.cpu.packed import Linear
from decoder.forward.families.attention import Pass, Rotation, attend
from decoder.forward.families.model import Layer, LeanModel
from decoder.forward.families.weights import Arithmetic, Matrix, read_layers, stacked, summed
from decoder.forward.kv_cache import side_by_side

GELU = {"gelu": "none", "gelu_new": "tanh", "gelu_fast": "tanh", "gelu_pytorch_tanh": "tanh"}
"""Activation to torch's name of its approximation."""


@dataclass(frozen=True)
class Norm:
    """A layer norm without its affine part."""

    shape: tuple[int]
    epsilon: float

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Rows of mean 0 and variance 1."""
        return torch.layer_norm(rows, self.shape, None, None, self.epsilon)


@dataclass(frozen=True)
class Shape:
    """What a layer's products look like."""

    heads: int
    head: int
    """Width of one head."""
    rotated: int
    """Dimensions of a head that are rotated."""
    gelu: str
    """As torch calls its approximation."""

    @property
    def attention(self) -> int:
        """Columns of all queries; as many of all keys and of all values."""
        return self.heads * self.head


def attended(product: Float[Tensor, "N Y"], dtype: torch.dtype, shape: Shape, given: Pass, index: int) -> None:
    """Reads keys, values and queries, a product's first columns, and writes what is attended to over the queries.

    Every part is taken by its strides: chains of small views would cost more than the attention of a small model.
    """
    columns, head = shape.attention, shape.head
    rows = product if product.dtype is dtype else product[:, : 3 * columns].to(dtype)
    count, width = rows.shape
    if shape.rotated:
        pairs = (count, 2, shape.heads, shape.rotated // 2, 2), (width, 2 * columns, head, 2, 1)
        torch.view_as_complex(rows.as_strided(*pairs)).mul_(given.rotation)
    given.new[index].copy_(rows.as_strided((2, shape.heads, count, head), (columns, head, width, 1)))
    queries = _queries(rows, shape)
    (queries if rows is product else _queries(product, shape)).copy_(attend(queries, given, index))


def _queries(product: Float[Tensor, "N Y"], shape: Shape) -> Float[Tensor, "H N D"]:
    size, strides = (shape.heads, len(product), shape.head), (shape.head, product.shape[1], 1)
    return product.as_strided(size, strides, 2 * shape.attention)


def activated(product: Float[Tensor, "N Y"], shape: Shape, first: int = 0) -> Float[Tensor, "N Y"]:
    """The activation of all columns from `first` on, in place."""
    count, width = product.shape
    half = (width - first) // 2
    # Seen as contiguous, a single row would go to oneDNN's activation, which wakes all threads for it.
    columns = product.as_strided((count, half, 2), (width, 1, half), first)
    functional.gelu(columns, approximate=shape.gelu, out=columns)  # type: ignore[call-arg]  # torch's stub lacks `out`
    return product


@dataclass(frozen=True)
class Parallel:
    """x + attention(norm(x)) + mlp(norm(x))."""

    norm: Norm
    shape: Shape
    inward: Linear
    outward: Linear

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        """See `Layer`."""
        product, columns = self.inward(self.norm(rows)), self.shape.attention
        attended(product, rows.dtype, self.shape, given, index)
        activated(product, self.shape, 3 * columns)
        return self.outward.added_to(rows, product.narrow(1, 2 * columns, product.shape[1] - 2 * columns))


@dataclass(frozen=True)
class Sequential:
    """y = x + attention(norm(x)), then y + mlp(norm(y))."""

    norm: Norm
    shape: Shape
    inward: Linear
    outward: Linear
    up: Linear
    down: Linear

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        """See `Layer`."""
        product = self.inward(self.norm(rows))
        attended(product, rows.dtype, self.shape, given, index)
        rows = self.outward.added_to(rows, product[:, 2 * self.shape.attention :])
        return self.down.added_to(rows, activated(self.up(self.norm(rows)), self.shape))


def read_neox(module: Any, arithmetic: Arithmetic) -> LeanModel:
    """The weights of a `GPTNeoXForCausalLM`."""
    config, body = module.config, module.gpt_neox
    rotation = Rotation(body.rotary_emb, arithmetic.rows)
    norm = Norm((config.hidden_size,), config.layer_norm_eps)
    shape = Shape(
        config.num_attention_heads,
        config.hidden_size // config.num_attention_heads,
        rotation.width,
        GELU[config.hidden_act],
    )
    make: Callable[..., Layer] = _parallel if config.use_parallel_residual else _sequential
    return LeanModel(
        embedding=body.embed_in.weight.detach().to(arithmetic.weights),
        layers=read_layers(body.layers, lambda layer: make(layer, norm, shape, arithmetic), arithmetic),
        normalise=norm,
        head=Matrix.read(module.lm_head, arithmetic.rows, body.final_layer_norm).packed(arithmetic),
        rotation=rotation,
        rows=arithmetic.rows,
        heads=shape.heads,
        groups=1,
        head_width=shape.head,
    )


def _parallel(layer: Any, norm: Norm, shape: Shape, arithmetic: Arithmetic) -> Layer:
    dtype = arithmetic.rows
    up = Matrix.read(layer.mlp.dense_h_to_4h, dtype, layer.post_attention_layernorm)
    return Parallel(
        norm,
        shape,
        inward=stacked(_inward(layer, shape, dtype), up).packed(arithmetic),
        outward=summed(Matrix.read(layer.attention.dense, dtype), Matrix.read(layer.mlp.dense_4h_to_h, dtype)).packed(
            arithmetic
        ),
    )


def _sequential(layer: Any, norm: Norm, shape: Shape, arithmetic: Arithmetic) -> Layer:
    dtype = arithmetic.rows
    return Sequential(
        norm,
        shape,
        inward=_inward(layer, shape, dtype).packed(arithmetic),
        outward=Matrix.read(layer.attention.dense, dtype).packed(arithmetic),
        up=Matrix.read(layer.mlp.dense_h_to_4h, dtype, layer.post_attention_layernorm).packed(arithmetic),
        down=Matrix.read(layer.mlp.dense_4h_to_h, dtype).packed(arithmetic),
    )


def _inward(layer: Any, shape: Shape, dtype: torch.dtype) -> Matrix:
    """The matrix of keys, values and queries, whose rows Hugging Face orders head by head."""
    fused = Matrix.read(layer.attention.query_key_value, dtype, layer.input_layernorm)
    rows = torch.arange(len(fused.bias)).view(shape.heads, 3, shape.head)
    neighbours = [*side_by_side(shape.rotated), *range(shape.rotated, shape.head)]
    queries, keys, values = rows[:, 0, neighbours], rows[:, 1, neighbours], rows[:, 2]
    return stacked(
        fused.ordered(keys.flatten()),
        fused.ordered(values.flatten()),
        # The scale of the scores is folded into the queries.
        fused.ordered(queries.flatten()).scaled(shape.head**-0.5),
    )
