"""Norm, matrix product and gated activation of a layer as one Triton kernel.

The reference in torch is `decoder.forward.families.model.normed`. A program reads whole rows for its columns of the
product, so it also sums the values and squares of each row, which determine the norm's mean and scale. These are
applied to the product: (x - m) s W = s (x W - m 1 W), where 1 W are the sums of the columns of W. So the normalised
rows and the columns before the activation are never written to memory.

Nothing here reads a value on the host, so CUDA graphs can capture the kernel. This module must stay independent of
trees, graphs and sessions. It can be imported only where Triton is installed.
"""

from dataclasses import replace
from functools import partial
from typing import TypeGuard

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from decoder.forward.families.model import Activation, Layer, LayerNorm, NativeLayer, Norm, RmsNorm, gated_silu, normed
from decoder.forward.families.native import NativeModel
from decoder.forward.linear import Linear
from decoder.system.device import multiprocessors_of

MOST_ROWS = 64
"""Largest number of rows that the kernel computes, since a program keeps its sums for all rows in registers."""
COLUMNS, MOST_COLUMNS = 32, 128
"""Least and largest number of columns of the product that one program computes."""
DEPTH, DEPTH_OF_MANY_COLUMNS, DEPTH_OF_FLOAT32 = 128, 64, 32
"""Number of a row's values that a program multiplies at once; `DEPTH` is for `COLUMNS` columns."""
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32})
LAUNCH = {"num_warps": 4, "num_stages": 4, "enable_fp_fusion": True}


@triton.jit
def _weights(weight: tl.tensor, column: tl.tensor, k: tl.tensor, there: tl.tensor, size: tl.constexpr) -> tl.tensor:
    """A block of the transposed weights, shape (depth, columns)."""
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
    """Program b computes block b of `columns` columns for all `count` rows of the output, which has `width` columns. If
    `gated`, the weights of the gates come before the weights of the columns that the gates multiply. If `centred`, the
    norm subtracts the mean; this is not possible together with `gated`.
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


def columns_of(tile: int, width: int, multiprocessors: int, dtype: torch.dtype, *, gated: bool) -> int:
    """Number of the product's `width` columns that one program computes.

    Every program reads all rows, from the L2 cache: tile / columns bytes for each byte of weights, or half as many if
    `gated`. So with 64 rows, a program computes as many columns as its registers hold sums for, unless more than half
    of the multiprocessors would then have no program. With fewer rows, or in float32, where a product takes longer than
    reading, a program computes `COLUMNS` columns.
    """
    if tile < MOST_ROWS or dtype is torch.float32:
        return COLUMNS
    columns = MOST_COLUMNS // 2 if gated else MOST_COLUMNS
    while columns > COLUMNS and 2 * triton.cdiv(width, columns) < multiprocessors:
        columns //= 2
    return columns


def _depth(columns: int, dtype: torch.dtype) -> int:
    if dtype is torch.float32:
        return DEPTH_OF_FLOAT32
    return DEPTH if columns == COLUMNS else DEPTH_OF_MANY_COLUMNS


def normed_product(
    multiprocessors: int, rows: Float[Tensor, "N X"], norm: Norm, linear: Linear, activation: Activation | None
) -> Float[Tensor, "N Y"]:
    """`normed` by the kernel, or by torch for more than `MOST_ROWS` rows. The product must be in the rows' dtype. The
    only activation is `gated_silu`, after an `RmsNorm`.
    """
    count, size = rows.shape
    if count > MOST_ROWS:
        return normed(rows, norm, linear, activation)
    weight, bias = linear.weight, linear.bias
    gated, tile = activation is not None, max(16, triton.next_power_of_2(count))
    width = len(weight) // 2 if gated else len(weight)
    columns = columns_of(tile, width, multiprocessors, rows.dtype, gated=gated)
    out = rows.new_empty((count, width))
    normed_columns[(triton.cdiv(width, columns),)](
        rows,
        rows.stride(0),
        weight,
        weight if bias is None else bias,
        out,
        count,
        size=size,
        width=width,
        epsilon=norm.epsilon,
        centred=isinstance(norm, LayerNorm),
        gated=gated,
        biased=bias is not None,
        tile=tile,
        columns=columns,
        depth=min(triton.next_power_of_2(size), _depth(columns, rows.dtype)),
        **LAUNCH,
    )
    return out


def with_kernels(form: NativeModel) -> NativeModel:
    """The same model, whose layers use the kernel where it can compute their products."""
    product = partial(normed_product, multiprocessors_of(form.device).count)
    return form.with_layers(lambda layer: replace(layer, normed=product) if _computable(layer) else layer)


def _computable(layer: Layer) -> TypeGuard[NativeLayer]:
    if not isinstance(layer, NativeLayer) or layer.inward.weight.dtype not in DTYPES:
        return False
    gated = isinstance(layer.norm, RmsNorm) and layer.activation.in_place is gated_silu
    return layer.up is None or (gated and layer.up.weight.dtype in DTYPES)
