"""Attention of a native layer in two Triton kernels, without the KV cache's unused slots.

The reference in torch is `decoder.forward.families.model.attended`, then `gelu` in layers with parallel residual. The
two kernels replace about seven: for RoPE, writing keys and values, attention, copying its output, and GELU.

The first kernel divides the slots before the pass's own among several programs for each head (split-KV); one more
program attends to the pass's own rows, whose keys it rotates and writes. The second kernel merges the programs' results
by their log-sum-exp. So no program reads a slot that another program writes, and the work grows with the text, not with
the number of columns of the mask, which CUDA graphs round up.

Nothing here reads a value on the host or depends on the text's length, so CUDA graphs can capture the kernels. This
module must stay independent of trees, graphs and sessions; its mask is the bias that the reference gets. It can be
imported only where Triton is installed.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from decoder.forward.families.model import Heads, Layer, NativeLayer, Pass, attended, gelu
from decoder.forward.families.native import NativeModel
from decoder.system.device import HOPPER, Multiprocessors, multiprocessors_of

MOST_ROWS = 256
"""Largest number of rows that the kernels compute; prompts have more rows."""
LEAST_TILE, TILE, TILE_OF_FLOAT32 = 16, 64, 32
"""Number of queries of one program: the minimum, the maximum in half precision, and the maximum in float32."""
STEP, SCORES_OF_FLOAT32 = 64, 512
"""Number of keys that a program multiplies at once; in float32, the number of scores that it computes at once. With
these numbers, no program for heads of 128 dimensions spills registers.
"""
LEAST_PART = 4
"""Least number of slots of a part, as a multiple of the queries of a program. Then a part's result, written and read in
float32, has at most half as many bytes as the part's keys and values in half precision.
"""
MOST_PARTS = 64
PROGRAMS = 4
"""Slots are divided into parts until there are this many programs per multiprocessor. A multiprocessor of an H100 has
registers and shared memory for 4 programs of the smallest tile in half precision, and for 2 of all other programs.
"""
REGISTERS = 128
"""Largest number of registers of a thread in the smallest tile: `PROGRAMS` programs of 4 warps then have the 65,536
registers of a multiprocessor.
"""
STAGES = 2
"""Pipeline stages of the loop over the keys before the pass's own."""
COLUMNS = 1024
"""Number of the MLP's columns that one program activates."""
MERGE = {"num_warps": 8, "num_stages": 1, "enable_fp_fusion": True}
HIDDEN: tl.constexpr = tl.constexpr(torch.finfo(torch.float32).min)
"""Start of a running maximum; finite, so that no difference of two maxima is NaN."""


@triton.jit
def _rotated(
    rows: tl.tensor,
    live: tl.tensor,
    rotations: tl.tensor,
    width: tl.constexpr,
    padded: tl.constexpr,
    rotated: tl.constexpr,
) -> tl.tensor:
    """Heads at the addresses `rows`, with their first `rotated` dimensions rotated by the pairs (cosine, sine) at the
    addresses `rotations`; rounded to the product's dtype. Loads are of adjacent numbers, several at once per thread.
    """
    d = tl.arange(0, padded)
    there = live[:, None] & (d < width)[None, :]
    heads = tl.load(rows[:, None] + d[None, :], there, other=0.0)
    if rotated > 0:
        pairs: tl.constexpr = [rows.shape[0], padded // 2, 2]
        rotating = (d < rotated)[None, :]
        numbers = tl.load(rotations[:, None] + d[None, :], live[:, None] & rotating, other=0.0)
        cosine, sine = tl.split(tl.reshape(numbers.to(tl.float32), pairs))
        left, right = tl.split(tl.reshape(heads.to(tl.float32), pairs))
        both = tl.join(left * cosine - right * sine, left * sine + right * cosine)
        heads = tl.where(rotating, tl.reshape(both, heads.shape).to(heads.dtype), heads)
    return heads


@triton.jit
def _attended(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    bias: tl.tensor,
    most: tl.tensor,
    total: tl.tensor,
    mean: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Adds a block of keys to a running softmax: largest score, sum of weights, sum of weighted values."""
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") + bias
    higher = tl.maximum(most, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    kept = tl.exp(most - higher)
    added = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return higher, total * kept + tl.sum(weights, 1), mean * kept[:, None] + added


@triton.jit(do_not_specialize=["count", "rotation_stride"])
def attend_by_parts(
    product: tl.tensor,
    row_stride: tl.tensor,
    first: tl.tensor,
    store: tl.tensor,
    kind_stride: tl.tensor,
    head_stride: tl.tensor,
    rotation: tl.tensor,
    rotation_stride: tl.tensor,
    slots: tl.tensor,
    bias: tl.tensor,
    bias_stride: tl.tensor,
    part_mean: tl.tensor,
    part_most: tl.tensor,
    part_total: tl.tensor,
    count: tl.tensor,
    visible: tl.tensor,
    heads: tl.constexpr,
    groups: tl.constexpr,
    width: tl.constexpr,
    padded: tl.constexpr,
    rotated: tl.constexpr,
    tile: tl.constexpr,
    step: tl.constexpr,
    own_step: tl.constexpr,
    most_rows: tl.constexpr,
    aligned: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """Attention of `tile` rows to one part of a key-value head's slots, `step` slots at a time; see `attend`. The last
    part is the pass's own rows, `own_step` rows at a time.

    The query heads of a key-value head are stacked as rows: row r is token r % count of query head r // count.
    `aligned` divides the number of rotated dimensions and `rotation_stride`.
    """
    head, block, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    parts = tl.num_programs(2)
    rows = block * tile + tl.arange(0, tile)
    live = rows < count * groups
    token, group = rows % count, rows // count
    d = tl.arange(0, padded)
    dense = (d < width)[None, :]
    # The columns are [queries | keys | values]; in each of the three, heads follow one another.
    asking = product + token * row_stride + first + (head * groups + group) * width
    rotations = rotation + tl.multiple_of(token * rotation_stride, aligned)
    queries = _rotated(asking, live, rotations, width, padded, rotated)
    keys, values = store + head * head_stride, store + kind_stride + head * head_stride
    biases = bias + token * bias_stride

    most = tl.full([tile], HIDDEN, tl.float32)
    total = tl.zeros([tile], tl.float32)
    mean = tl.zeros([tile, padded], tl.float32)
    if part < parts - 1:
        all_rows = tl.arange(0, most_rows)
        own = tl.load(slots + all_rows, all_rows < count, other=visible).to(tl.int32)
        end = tl.min(tl.minimum(own, visible), 0)
        # The next step's keys, values and biases are loaded during each step.
        for start in tl.range(part * step, end, (parts - 1) * step, num_stages=stages):
            slot = start + tl.arange(0, step)
            there = (slot < end)[:, None] & dense
            key = tl.load(keys + slot[:, None] * width + d[None, :], there, other=0.0)
            value = tl.load(values + slot[:, None] * width + d[None, :], there, other=0.0)
            # This mask ends at `visible`, usually a multiple of 16, so that a thread can load several biases at once.
            read = live[:, None] & (slot < visible)[None, :]
            added = tl.load(biases[:, None] + slot[None, :], read, other=float("-inf")).to(tl.float32)
            added = tl.where((slot < end)[None, :], added, float("-inf"))
            most, total, mean = _attended(queries, key, value, added, most, total, mean)
    else:
        for start in tl.range(0, count, own_step, num_stages=1):
            n = start + tl.arange(0, own_step)
            new = n < count
            there = new[:, None] & dense
            kept = product + n * row_stride + first + (heads * groups + head) * width
            key_rotations = rotation + tl.multiple_of(n * rotation_stride, aligned)
            key = _rotated(kept, new, key_rotations, width, padded, rotated)
            value = tl.load(kept[:, None] + heads * width + d[None, :], there, other=0.0)
            slot = tl.load(slots + n, new, other=0).to(tl.int32)
            if block == 0:
                tl.store(keys + slot[:, None] * width + d[None, :], key, there)
                tl.store(values + slot[:, None] * width + d[None, :], value, there)
            read = live[:, None] & (new & (slot < visible))[None, :]
            added = tl.load(biases[:, None] + slot[None, :], read, other=float("-inf")).to(tl.float32)
            most, total, mean = _attended(queries, key, value, added, most, total, mean)

    out = (head * parts + part) * (count * groups) + rows
    tl.store(part_mean + out[:, None] * width + d[None, :], mean, live[:, None] & dense)
    tl.store(part_most + out, most, live)
    tl.store(part_total + out, total, live)


@triton.jit(do_not_specialize=["count", "parts"])
def merge_and_activate(
    product: tl.tensor,
    row_stride: tl.tensor,
    first: tl.tensor,
    part_mean: tl.tensor,
    part_most: tl.tensor,
    part_total: tl.tensor,
    count: tl.tensor,
    parts: tl.tensor,
    asking: tl.constexpr,
    groups: tl.constexpr,
    width: tl.constexpr,
    padded: tl.constexpr,
    padded_parts: tl.constexpr,
    tanh: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    """Program (token, head) overwrites the queries of one of the `asking` query heads with the head's merged output;
    program (token, asking + b) applies GELU to block b of the columns before `first`.
    """
    token, head = tl.program_id(0), tl.program_id(1)
    row = product + token * row_stride
    if head < asking:
        part, d = tl.arange(0, padded_parts), tl.arange(0, padded)
        given, dense = part < parts, d < width
        at = (head // groups * parts + part) * (count * groups) + head % groups * count + token
        most = tl.load(part_most + at, given, other=HIDDEN)
        weights = tl.where(given, tl.exp(most - tl.max(most, 0)), 0.0)
        total = tl.sum(weights * tl.load(part_total + at, given, other=0.0), 0)
        mean = tl.load(part_mean + at[:, None] * width + d[None, :], given[:, None] & dense[None, :], other=0.0)
        output = tl.sum(weights[:, None] * mean, 0) / total
        tl.store(row + first + head * width + d, output.to(product.dtype.element_ty), dense)
    else:
        column = (head - asking) * columns + tl.arange(0, columns)
        inside = column < first
        x = tl.load(row + column, inside, other=0.0).to(tl.float32)
        if tanh:
            # 0.5 (1 + tanh(u)) is the sigmoid of 2u.
            gate = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        else:
            gate = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        tl.store(row + column, (x * gate).to(product.dtype.element_ty), inside)


@dataclass(frozen=True)
class Division:
    tile: int
    step: int
    """Number of keys before the pass's own that a program multiplies at once."""
    blocks: int
    """Number of blocks of `tile` queries for each key-value head."""
    parts: int
    """Number of parts of the slots; the pass's own rows are one more part."""

    @property
    def own_step(self) -> int:
        """Number of the pass's own keys that a program multiplies at once. It is at most `tile`, since the rotation of
        keys needs registers, and a pass of few rows has no more keys than queries.
        """
        return min(self.tile, self.step)


def division(heads: Heads, rows: int, visible: int, multiprocessors: int, dtype: torch.dtype) -> Division:
    float32, queries = dtype is torch.float32, rows * heads.groups
    tile = min(TILE_OF_FLOAT32 if float32 else TILE, max(LEAST_TILE, triton.next_power_of_2(queries)))
    blocks = triton.cdiv(queries, tile)
    resident = PROGRAMS * multiprocessors // (heads.heads * blocks)
    parts = max(1, min(visible // (LEAST_PART * tile), resident - 1, MOST_PARTS - 1))
    return Division(tile, SCORES_OF_FLOAT32 // tile if float32 else STEP, blocks, parts)


def launch(tile: int, dtype: torch.dtype, generation: int) -> dict[str, int | bool | None]:
    """Compiler options: as few warps as possible without spilled registers. From Hopper on, 4 warps multiply a tile of
    64 queries by one instruction, which reads keys and values from shared memory.
    """
    float32 = dtype is torch.float32
    warps = 8 if float32 or (tile == TILE and generation < HOPPER) else 4
    most = REGISTERS if tile == LEAST_TILE and not float32 else None
    return {"num_warps": warps, "num_stages": 1, "maxnreg": most, "enable_fp_fusion": True}


def attend(
    product: Float[Tensor, "N Y"],
    first: int,
    heads: Heads,
    given: Pass,
    index: int,
    approximate: str | None,
    processors: Multiprocessors,
) -> None:
    """`attended` by kernels; also applies GELU to the columns before `first`, unless `approximate` is None.

    Every row must attend to a slot. Each slot to which a row attends must belong to a row of this pass, or come before
    the slots of all these rows. This holds in texts and trees: rows attend only to rows of the same or earlier passes.
    """
    place, bias = given.new[index], given.biases[index]
    # If all rows have one position, there is one rotation for all of them.
    store, rotations = place.rows, torch.view_as_real(given.rotation.expand(len(product), -1, -1, -1))
    count, rows, asking = len(product), len(product) * heads.groups, heads.heads * heads.groups
    visible = given.values[index].shape[1]
    divided = division(heads, count, visible, processors.count, product.dtype)
    parts = divided.parts + 1
    means = product.new_empty((heads.heads, parts, rows, heads.width), dtype=torch.float32)
    maxima, totals = means.new_empty((2, heads.heads, parts, rows)).unbind()
    sizes = {"groups": heads.groups, "width": heads.width, "padded": max(16, triton.next_power_of_2(heads.width))}
    attend_by_parts[heads.heads, divided.blocks, parts](
        product,
        product.stride(0),
        first,
        store,
        store.stride(0),
        store.stride(1),
        rotations,
        rotations.stride(0),
        place.slots,
        bias,
        bias.stride(0),
        means,
        maxima,
        totals,
        count,
        visible,
        heads=heads.heads,
        rotated=heads.rotated,
        tile=divided.tile,
        step=divided.step,
        own_step=divided.own_step,
        most_rows=MOST_ROWS,
        aligned=math.gcd(heads.rotated, rotations.stride(0), 16),
        stages=STAGES,
        **sizes,
        **launch(divided.tile, product.dtype, processors.generation),
    )
    activating = triton.cdiv(first, COLUMNS) if approximate else 0
    merge_and_activate[count, asking + activating](
        product,
        product.stride(0),
        first,
        means,
        maxima,
        totals,
        count,
        parts,
        asking=asking,
        padded_parts=triton.next_power_of_2(parts),
        tanh=approximate == "tanh",
        columns=COLUMNS,
        **sizes,
        **MERGE,
    )


@dataclass(frozen=True)
class TreeAttention:
    """A layer's attention by the kernels, or by torch for more than `MOST_ROWS` rows."""

    approximate: str | None
    """Torch's name for the kind of GELU that is also applied to the MLP's columns; None for no activation."""
    processors: Multiprocessors

    def __call__(self, product: Tensor, first: int, heads: Heads, given: Pass, index: int) -> None:
        if len(product) <= MOST_ROWS:
            attend(product, first, heads, given, index, self.approximate, self.processors)
            return
        attended(product, first, heads, given, index)
        if self.approximate is not None:
            gelu(product.narrow(1, 0, first), self.approximate)


def with_kernels(form: NativeModel) -> NativeModel:
    return form.with_layers(partial(_with_kernels, multiprocessors_of(form.device)))


def _with_kernels(processors: Multiprocessors, layer: Layer) -> Layer:
    if not isinstance(layer, NativeLayer):
        return layer
    approximate = layer.activation.approximate if layer.inner else None
    activation = layer.activation if approximate is None else replace(layer.activation, in_place=_same)
    return replace(layer, attended=TreeAttention(approximate, processors), activation=activation)


def _same(columns: Tensor) -> Tensor:
    """Returns its input, since the kernels have already applied the activation."""
    return columns
