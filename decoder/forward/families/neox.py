"""GPT-NeoX (Pythia's architecture) as few, large operations.

Both layer norms are folded into the matrices behind them. With a parallel residual one normalised row serves attention
and MLP, so a layer is one product for [keys | values | queries | mlp] and one for [attention | mlp]. Where the MLP
follows attention, each has two of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from decoder.forward.cpu.packed import Linear
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.attention import Pass, Rotation, attend
from decoder.forward.families.model import Layer, LeanModel
from decoder.forward.families.weights import Arithmetic, Matrix, Shapes, Source, stacked, summed
from decoder.forward.kv_cache import side_by_side

GELU = {"gelu": "none", "gelu_new": "tanh", "gelu_fast": "tanh", "gelu_pytorch_tanh": "tanh"}
"""Activation to torch's name of its approximation."""
BODY = "gpt_neox"
"""What Hugging Face calls all but the head."""
EMBEDDING = f"{BODY}.embed_in"


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


def read_neox(source: Source, arithmetic: Arithmetic) -> LeanModel:
    """A `GPTNeoXForCausalLM`."""
    look, weights = source.architecture, source.weights
    rotation = Rotation(source.frequencies, arithmetic.rows)
    norm = Norm((look.hidden_size,), look.norm_eps)
    shape = Shape(look.num_attention_heads, look.head_dim, rotation.width, GELU[look.hidden_act])
    make: Callable[..., Layer] = _parallel if look.use_parallel_residual else _sequential
    return LeanModel(
        embedding=weights[f"{EMBEDDING}.weight"].detach().to(arithmetic.weights),
        layers=source.layers(f"{BODY}.layers", lambda at: make(weights, at, norm, shape, arithmetic)),
        normalise=norm,
        head=Matrix.read(weights, "lm_head", arithmetic.rows, f"{BODY}.final_layer_norm").packed(arithmetic),
        rotation=rotation,
        rows=arithmetic.rows,
        heads=shape.heads,
        groups=1,
        head_width=shape.head,
    )


def outer_shapes(look: Architecture) -> Shapes:
    """Weights beside the layers."""
    width, words = (look.hidden_size,), (look.vocab_size, look.hidden_size)
    norm = f"{BODY}.final_layer_norm"
    return {f"{EMBEDDING}.weight": words, f"{norm}.weight": width, f"{norm}.bias": width, "lm_head.weight": words}


def layer_shapes(look: Architecture) -> Shapes:
    """Weights of one layer."""
    width, inner = look.hidden_size, look.intermediate_size
    matrices = {
        "attention.query_key_value": (3 * width, width),
        "attention.dense": (width, width),
        "mlp.dense_h_to_4h": (inner, width),
        "mlp.dense_4h_to_h": (width, inner),
    }
    biased = [name for name in matrices if look.attention_bias or name.startswith("mlp")]
    norms = ("input_layernorm", "post_attention_layernorm")
    return (
        {f"{name}.weight": shape for name, shape in matrices.items()}
        | {f"{name}.bias": matrices[name][:1] for name in biased}
        | {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}
    )


def _parallel(weights: Mapping[str, Tensor], at: str, norm: Norm, shape: Shape, arithmetic: Arithmetic) -> Layer:
    dtype = arithmetic.rows
    up = Matrix.read(weights, f"{at}.mlp.dense_h_to_4h", dtype, f"{at}.post_attention_layernorm")
    back = Matrix.read(weights, f"{at}.attention.dense", dtype), Matrix.read(weights, f"{at}.mlp.dense_4h_to_h", dtype)
    return Parallel(
        norm,
        shape,
        inward=stacked(_inward(weights, at, shape, dtype), up).packed(arithmetic),
        outward=summed(*back).packed(arithmetic),
    )


def _sequential(weights: Mapping[str, Tensor], at: str, norm: Norm, shape: Shape, arithmetic: Arithmetic) -> Layer:
    dtype = arithmetic.rows
    up = Matrix.read(weights, f"{at}.mlp.dense_h_to_4h", dtype, f"{at}.post_attention_layernorm")
    return Sequential(
        norm,
        shape,
        inward=_inward(weights, at, shape, dtype).packed(arithmetic),
        outward=Matrix.read(weights, f"{at}.attention.dense", dtype).packed(arithmetic),
        up=up.packed(arithmetic),
        down=Matrix.read(weights, f"{at}.mlp.dense_4h_to_h", dtype).packed(arithmetic),
    )


def _inward(weights: Mapping[str, Tensor], at: str, shape: Shape, dtype: torch.dtype) -> Matrix:
    """The matrix of keys, values and queries, whose rows Hugging Face orders head by head."""
    fused = Matrix.read(weights, f"{at}.attention.query_key_value", dtype, f"{at}.input_layernorm")
    rows = torch.arange(len(fused.bias)).view(shape.heads, 3, shape.head)
    neighbours = [*side_by_side(shape.rotated), *range(shape.rotated, shape.head)]
    queries, keys, values = rows[:, 0, neighbours], rows[:, 1, neighbours], rows[:, 2]
    return stacked(
        fused.ordered(keys.flatten()),
        fused.ordered(values.flatten()),
        # The scale of the scores is folded into the queries.
        fused.ordered(queries.flatten()).scaled(shape.head**-0.5),
    )
