"""Native families: models whose weights and configuration are fully known, so that they run without Hugging Face's
modules. This module reads weights by name, folds each norm into the matrices after it, and concatenates matrices.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from decoder.forward.families.architecture import ROTARY, Architecture, ModelWeights
from decoder.forward.families.model import (
    Activation,
    Heads,
    LayerNorm,
    NativeLayer,
    RmsNorm,
    Rotation,
    RotationMatrices,
    gated_silu,
    gelu,
)
from decoder.forward.families.native import ALIGNED, NativeModel
from decoder.forward.kv_cache import side_by_side
from decoder.forward.layer_kinds import FULL, SLIDING, windows_of
from decoder.forward.linear import HALF, Linear

Shapes = Mapping[str, tuple[int, ...]]
HEAD = "lm_head.weight"
NORMS = "input_layernorm", "post_attention_layernorm"
"""Names of the norms before attention and before the MLP, the same in all families."""
FIXED = 16.0
"""A number that every kind of GELU maps to itself in every dtype; a power of 2, so that scaling is exact."""
COPIES = 3
"""Number of float32 copies of the largest layer while it is read: two for folding norms, and one for the result."""


@dataclass(frozen=True)
class Family:
    """Hugging Face's names of a family's parts, and the operations that differ between families."""

    name: str
    """Name of the family's model class in transformers."""
    body: str
    """Prefix of the names of all weights except those of the output head."""
    embedding: str
    last_norm: str
    inward: tuple[str, ...]
    """Names of the matrices of queries, keys and values, or of one matrix that interleaves all three by head."""
    outward: str
    up: tuple[str, ...]
    """Name of the MLP's up matrix, or names of its gate matrix and its up matrix."""
    down: str
    biased: Callable[[Architecture, str], bool]
    """(architecture, name of a matrix) -> whether this matrix has a bias."""
    norm: type[LayerNorm | RmsNorm]
    activations: Mapping[str, Activation]
    layer_types: frozenset[str] = frozenset({FULL})
    """Attention types of layers that the family supports."""
    head_norms: tuple[str, ...] = ()
    """Names of the norms of each query head and of each key head; only compiled passes support such norms."""


def _gelu(approximate: str) -> Activation:
    in_place, formula = (partial(function, approximate=approximate) for function in (gelu, functional.gelu))
    return Activation(in_place, formula, approximate)


NEOX = Family(
    "GPTNeoXForCausalLM",
    body="gpt_neox",
    embedding="gpt_neox.embed_in",
    last_norm="gpt_neox.final_layer_norm",
    inward=("attention.query_key_value",),
    outward="attention.dense",
    up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    biased=lambda arch, matrix: arch.attention_bias or matrix.startswith("mlp"),
    norm=LayerNorm,
    activations={"gelu": _gelu("none")} | dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), _gelu("tanh")),
)
LLAMA = Family(
    "LlamaForCausalLM",
    body="model",
    embedding="model.embed_tokens",
    last_norm="model.norm",
    inward=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    outward="self_attn.o_proj",
    up=("mlp.gate_proj", "mlp.up_proj"),
    down="mlp.down_proj",
    biased=lambda arch, matrix: arch.mlp_bias if matrix.startswith("mlp") else arch.attention_bias,
    norm=RmsNorm,
    activations={"silu": Activation(gated_silu, gated_silu)},
)
WINDOWED = replace(LLAMA, layer_types=frozenset({FULL, SLIDING}))
FAMILIES: Mapping[str, Family] = {
    "gpt_neox": NEOX,
    "llama": LLAMA,
    "mistral": replace(WINDOWED, name="MistralForCausalLM"),
    "qwen2": replace(WINDOWED, name="Qwen2ForCausalLM", biased=lambda _, matrix: matrix in LLAMA.inward),
    "qwen3": replace(WINDOWED, name="Qwen3ForCausalLM", head_norms=("self_attn.q_norm", "self_attn.k_norm")),
}
"""Native families by `model_type` of the configuration."""


def runs(arch: Architecture) -> bool:
    family = FAMILIES[arch.model_type]
    return (
        arch.hidden_act in family.activations
        and family.layer_types.issuperset(arch.layer_types)
        # Rotations view pairs of columns as complex numbers, so queries and keys must begin at even columns. With a
        # parallel residual, the MLP's columns come before the queries.
        and arch.intermediate_size % 2 == 0
        and arch.hidden_size // arch.num_attention_heads % 2 == 0
        and arch.rope_parameters["rope_type"] in ROTARY
    )


def only_compiled(arch: Architecture) -> bool:
    return bool(FAMILIES[arch.model_type].head_norms)


@dataclass(frozen=True)
class Matrix:
    """Weight and bias of a linear layer, before they are combined with others into one `Linear`."""

    weight: Float[Tensor, "Y X"]
    bias: Float[Tensor, "Y"]

    @classmethod
    def read(cls, weights: Mapping[str, Tensor], name: str, dtype: torch.dtype, norm: str | None = None) -> "Matrix":
        """Reads weight and bias; folds the affine part of the norm before the layer into them if `norm` names it."""

        def found(part: str) -> Tensor | None:
            weight = weights.get(part)
            return None if weight is None else weight.detach().to(dtype)

        weight, bias = weights[f"{name}.weight"].detach().to(dtype), found(f"{name}.bias")
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        if norm is None:
            return cls(weight, bias)
        if (shift := found(f"{norm}.bias")) is not None:
            bias = bias + weight @ shift
        return cls(weight * weights[f"{norm}.weight"].detach().to(dtype), bias)

    @property
    def unbiased(self) -> "Matrix":
        return Matrix(self.weight, torch.zeros_like(self.bias))

    def scaled(self, factor: float) -> "Matrix":
        return Matrix(self.weight * factor, self.bias * factor)

    def ordered(self, order: Tensor) -> "Matrix":
        """Column i of the output is the old column `order[i]`."""
        return Matrix(self.weight[order], self.bias[order])

    def made(self, dtype: torch.dtype) -> Linear:
        return Linear(self.weight, self.bias if bool(self.bias.any()) else None, dtype)


def stacked(*parts: Matrix) -> Matrix:
    """One matrix for several linear layers with the same input; its output is the concatenation of their outputs."""
    return Matrix(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))


def summed(*parts: Matrix) -> Matrix:
    """One matrix for the concatenated inputs of several linear layers; its output is the sum of their outputs."""
    bias = torch.stack([part.bias for part in parts]).sum(0)
    return Matrix(torch.cat([part.weight for part in parts], 1), bias)


def _carried(bias: Float[Tensor, "X"]) -> tuple[Matrix, Matrix]:
    """Up and down matrix of an MLP that adds `bias` to every row: the first of its `ALIGNED` hidden columns is `FIXED`,
    the others are 0. One operation then adds product, bias and residual.
    """
    column = FIXED * torch.eye(1, ALIGNED, dtype=bias.dtype, device=bias.device)
    up = Matrix(bias.new_zeros(ALIGNED, len(bias)), column[0])
    return up, Matrix(bias[:, None] * column / FIXED**2, torch.zeros_like(bias))


def native_model(source: ModelWeights, dtype: torch.dtype, context: int) -> NativeModel:
    """Makes a native model, whose weights are read from `source` layer by layer."""
    arch, family = source.architecture, FAMILIES[source.architecture.model_type]
    # Norms are folded into matrices in float32 or wider.
    folded = torch.float32 if dtype in HALF else dtype
    rotation = Rotation(source.frequencies, folded)
    heads = heads_of(arch, rotation)
    norm, activation = family.norm((arch.hidden_size,), arch.norm_eps), family.activations[arch.hidden_act]

    def read(name: str, before: str | None = None) -> Matrix:
        return Matrix.read(source.weights, name, folded, before)

    def layer(at: str) -> NativeLayer:
        def behind(norm: str, names: tuple[str, ...]) -> list[Matrix]:
            return [read(f"{at}.{name}", f"{at}.{norm}") for name in names]

        attention = _attention(behind(NORMS[0], family.inward), heads)
        back = read(f"{at}.{family.outward}")
        up, down = stacked(*behind(NORMS[1], family.up)), read(f"{at}.{family.down}")
        if arch.use_parallel_residual:
            constant, carrier = _carried(down.bias + back.bias)
            first = stacked(up, constant, attention).made(dtype)
            second = summed(down.unbiased, carrier, back.unbiased).made(dtype)
            return NativeLayer(norm, heads, activation, first, second, inner=arch.intermediate_size + ALIGNED)
        inward, outward, widening, narrowing = (part.made(dtype) for part in (attention, back, up, down))
        return NativeLayer(norm, heads, activation, inward, outward, widening, narrowing)

    embedding = source.weights[f"{family.embedding}.weight"].detach().to(dtype)
    return NativeModel(
        embedding=embedding,
        layers=source.layers(f"{family.body}.layers", layer),
        normalise=norm,
        head=read("lm_head", family.last_norm).made(dtype),
        rotary=rotation,
        # Rotations are complex products in place, which torch lacks in bfloat16.
        rotation_matrices=RotationMatrices(heads, dtype, embedding.device) if dtype is torch.bfloat16 else None,
        heads=heads,
        windows=windows_of(arch),
        context=context,
    )


def heads_of(arch: Architecture, rotation: Rotation) -> Heads:
    kept = arch.num_key_value_heads
    return Heads(kept, arch.num_attention_heads // kept, arch.head_dim, rotation.width)


def _attention(parts: list[Matrix], heads: Heads) -> Matrix:
    """The matrix of [queries | keys | values], with the two dimensions of each rotated pair adjacent."""
    if len(parts) == 1:
        by_head = torch.arange(len(parts[0].bias)).view(heads.heads, 3, heads.width)
        parts = [parts[0].ordered(by_head[:, part].flatten()) for part in range(3)]
    queries, keys, values = parts
    neighbours = [*side_by_side(heads.rotated), *range(heads.rotated, heads.width)]
    queries, keys = (
        part.ordered(torch.arange(len(part.bias)).view(-1, heads.width)[:, neighbours].flatten())
        for part in (queries, keys)
    )
    # The scale of the attention scores, 1 / sqrt(head width), is folded into the queries' weights.
    return stacked(queries.scaled(heads.width**-0.5), keys, values)


def shapes(arch: Architecture) -> Shapes:
    """Shapes of all weights by name, without the output head if it is tied to the embedding."""
    family, layer = FAMILIES[arch.model_type], _layer_shapes(arch)
    words, width = (arch.vocab_size, arch.hidden_size), (arch.hidden_size,)
    return (
        {f"{family.embedding}.weight": words}
        | {f"{family.last_norm}.{part}": width for part in family.norm.parts}
        | ({} if arch.tie_word_embeddings else {HEAD: words})
        | {f"{family.body}.layers.{at}.{name}": layer[name] for at in range(arch.num_hidden_layers) for name in layer}
    )


def _layer_shapes(arch: Architecture) -> Shapes:
    """Shapes of one layer's weights, by name within the layer."""
    family, width, inner = FAMILIES[arch.model_type], arch.hidden_size, arch.intermediate_size
    queries, keys = (heads * arch.head_dim for heads in (arch.num_attention_heads, arch.num_key_value_heads))
    columns = (queries, keys, keys) if len(family.inward) > 1 else (queries + 2 * keys,)
    matrices = {
        **{name: (rows, width) for name, rows in zip(family.inward, columns, strict=True)},
        family.outward: (width, queries),
        **dict.fromkeys(family.up, (inner, width)),
        family.down: (width, inner),
    }
    return (
        {f"{name}.weight": shape for name, shape in matrices.items()}
        | {f"{name}.bias": shape[:1] for name, shape in matrices.items() if family.biased(arch, name)}
        | {f"{name}.{part}": (width,) for name in NORMS for part in family.norm.parts}
        | {f"{name}.weight": (arch.head_dim,) for name in family.head_norms}
    )


def weight_bytes(arch: Architecture, dtype: torch.dtype) -> int:
    return dtype.itemsize * sum(map(math.prod, shapes(arch).values()))


def reading_bytes(arch: Architecture, dtype: torch.dtype) -> int:
    """Bytes of temporary memory for making a native model, beside the weights of its source and of the model itself."""
    layer = sum(map(math.prod, _layer_shapes(arch).values()))
    largest = max(layer, arch.vocab_size * arch.hidden_size)
    return COPIES * largest * max(torch.float32.itemsize, dtype.itemsize)
