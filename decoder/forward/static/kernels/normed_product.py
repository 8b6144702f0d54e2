"""Norm, matrix product and gated activation of a layer as one Triton kernel.

The plain reference is `decoder.forward.families.model.normed`. A program reads whole rows for its columns of the
product, so it also sums up their values and squares, which determine mean and scale of the norm. Both are applied to
the product: (x - m) s W = s (x W - m 1 W), where 1 W are the sums of the columns of W. So neither the normalised rows
nor the columns before the activation are written to memory.

Nothing here reads a value on the host, so CUDA graphs can capture it. This module must know nothing of trees, graphs or
sessions. It can be imported only where Triton is installed.
"""

from dataclasses import replace
from typing import TypeGuard, cast

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from decoder.forward.cpu.packed import Linear, PublicLinear
from decoder.forward.families.model import (
    Activation,
    Layer,
    LayerNorm,
    Normalise,
    Parallel,
    RmsNorm,
    Sequential,
    gated_silu,
    normed,
)
from decoder.forward.static.layers import NativeStatic

MOST_ROWS = 64
"""Largest number of rows for which the kernel is used: a program keeps its sums for all rows in registers."""
COLUMNS = 32
"""Number of columns of the product that one program computes."""
DEPTH, DEPTH_OF_FLOAT32 = 128, 32
"""Number of a row's values that a program multiplies at once."""
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32})
LAUNCH = {"num_warps": 4, "num_stages": 4, "enable_fp_fusion": True}


@triton.jit
def _weights(weight: tl.tensor, column: tl.tensor, k: tl.tensor, there: tl.tensor, size: tl.constexpr) -> tl.tensor:
    """Part of the transposed weights, values before columns."""
    return tl.load(weight + column[None, :] * size + k[:, None], there, other=0.0)


@triton.jit(do_not_specialize=["count"])
def normed_columns(
    rows: tl.tensor,
    row_stride: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    count: tl.tensor,
    size: tl.constexpr,
    width: tl.constexpr,
    epsilon: tl.constexpr,
    centred: tl.constexpr,
    gated: tl.constexpr,
    biased: tl.constexpr,
    tile: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> None:
    """Program b computes `columns` of the `width` columns of all `count` rows of the output. If `gated`, the weights
    are those of the gates, and then those of the columns that the gates multiply. If `centred`, the norm subtracts the
    mean; this is not possible together with `gated`.
    """
    r, n, d = tl.arange(0, tile), tl.program_id(0) * columns + tl.arange(0, columns), tl.arange(0, depth)
    live, inside = r < count, n < width
    squares = tl.zeros([tile], tl.float32)
    values = tl.zeros([tile], tl.float32)
    sums = tl.zeros([columns], tl.float32)
    total = tl.zeros([tile, columns], tl.float32)
    other = tl.zeros([tile, columns], tl.float32)
    for start in range(0, size, depth):
        k = start + d
        row = tl.load(rows + r[:, None] * row_stride + k[None, :], live[:, None] & (k < size)[None, :], other=0.0)
        there = (k < size)[:, None] & inside[None, :]
        weights = _weights(weight, n, k, there, size)
        total += tl.dot(row, weights, input_precision="ieee")
        if gated:
            other += tl.dot(row, _weights(weight + width * size, n, k, there, size), input_precision="ieee")
        single = row.to(tl.float32)
        squares += tl.sum(single * single, 1)
        if centred:
            values += tl.sum(single, 1)
            sums += tl.sum(weights.to(tl.float32), 0)
    mean = values / size
    # Rounding can make the variance of nearly equal values negative.
    scale = tl.rsqrt(tl.maximum(squares / size - mean * mean, 0.0) + epsilon)[:, None]
    total = (total - mean[:, None] * sums[None, :]) * scale
    if biased:
        total += tl.load(bias + n, inside, other=0.0).to(tl.float32)[None, :]
    if gated:
        other = other * scale
        if biased:
            other += tl.load(bias + width + n, inside, other=0.0).to(tl.float32)[None, :]
        total = total * tl.sigmoid(total) * other
    tl.store(out + r[:, None] * width + n[None, :], total.to(out.dtype.element_ty), live[:, None] & inside[None, :])


def normed_product(
    rows: Float[Tensor, "N X"], norm: Normalise, linear: Linear, activation: Activation | None
) -> Float[Tensor, "N Y"]:
    """`normed` by the kernel, or by the plain function for many rows. The product must be a `PublicLinear` in the rows'
    dtype. The only activation is `gated_silu`, after an `RmsNorm`.
    """
    count, size = rows.shape
    if count > MOST_ROWS:
        return normed(rows, norm, linear, activation)
    weight, bias = cast(PublicLinear, linear).weight, cast(PublicLinear, linear).bias
    width = len(weight) // 2 if activation else len(weight)
    out = rows.new_empty((count, width))
    normed_columns[(triton.cdiv(width, COLUMNS),)](
        rows,
        rows.stride(0),
        weight,
        weight if bias is None else bias,
        out,
        count,
        size=size,
        width=width,
        epsilon=cast(LayerNorm | RmsNorm, norm).epsilon,
        centred=isinstance(norm, LayerNorm),
        gated=activation is not None,
        biased=bias is not None,
        tile=max(16, triton.next_power_of_2(count)),
        columns=COLUMNS,
        depth=min(triton.next_power_of_2(size), DEPTH_OF_FLOAT32 if rows.dtype is torch.float32 else DEPTH),
        **LAUNCH,
    )
    return out


def with_kernels(form: NativeStatic) -> NativeStatic:
    """The same model, whose layers use the kernel where it can compute their products; it shares the weights."""
    return form.with_layers(_with_kernels)


def _computable(layer: Layer) -> TypeGuard[Parallel | Sequential]:
    if isinstance(layer, Sequential):
        products = [layer.inward, layer.up]
        known = isinstance(layer.norm, RmsNorm) and layer.activation.in_place is gated_silu
    elif isinstance(layer, Parallel):
        products, known = [layer.inward], isinstance(layer.norm, LayerNorm | RmsNorm)
    else:
        return False
    return known and all(isinstance(each, PublicLinear) and each.weight.dtype in DTYPES for each in products)


def _with_kernels(layer: Layer) -> Layer:
    return replace(layer, normed=normed_product) if _computable(layer) else layer
