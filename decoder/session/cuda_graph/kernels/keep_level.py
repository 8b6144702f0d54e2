"""Choice of a level's rows among candidates, in two kernels; the PyTorch version is `draft.keep_level`.

The first kernel decides for each candidate whether it is kept, by its rank: the number of candidates before it. Of
equally probable candidates, the first ones are kept. The second kernel writes the rows. These kernels are independent
of models and of what tokens mean.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

RANKED, COMPARED = 16, 256
"""Number of candidates that one program ranks, and number of candidates with which it compares them at a time."""
SCANNED, COLUMNS = 512, 1024
"""Number of candidates scanned at a time, and number of cache slots of one program."""


def iterations(candidates: int) -> tuple[int, int]:
    """For each kernel, the number of blocks of candidates that one program reads one after the other."""
    return -(-candidates // COMPARED), -(-candidates // SCANNED)


@triton.jit
def _value(paths, threshold, candidates, there, best: tl.constexpr):
    path = tl.load(paths + candidates, there, other=0.0)
    return path if best else tl.where(path >= tl.load(threshold), 1.0, 0.0)


@triton.jit
def choose_rows(
    paths,
    threshold,
    kept,
    count,
    width,
    best: tl.constexpr,
    ranked: tl.constexpr,
    compared: tl.constexpr,
):
    """Stores whether each candidate is one of the first `width` candidates, by descending value, then by index."""
    i = tl.program_id(0) * ranked + tl.arange(0, ranked)
    value = _value(paths, threshold, i, i < count, best)[:, None]
    rank = tl.zeros([ranked], tl.int32)
    for start in range(0, count, compared):
        j = start + tl.arange(0, compared)
        other = _value(paths, threshold, j, j < count, best)[None, :]
        before = (other > value) | ((other == value) & (j[None, :] < i[:, None]))
        rank += tl.sum((before & (j < count)[None, :]).to(tl.int32), 1)
    tl.store(kept + i, (rank < width).to(tl.uint8), i < count)


@triton.jit
def write_rows(
    kept,
    count,
    lines,
    line_stride,
    rows,
    row_stride,
    bias,
    bias_stride,
    slots,
    new_bias,
    columns,
    scanned: tl.constexpr,
    block: tl.constexpr,
):
    """Program for a block of one row's attention bias; the row's first program also writes the row's lines."""
    row, number = tl.program_id(0), tl.program_id(1)
    chosen, before = 0, 0
    for start in range(0, count, scanned):
        j = start + tl.arange(0, scanned)
        stays = tl.load(kept + j, j < count, other=0).to(tl.int32)
        place = before + tl.cumsum(stays, 0)
        chosen += tl.sum(tl.where((stays != 0) & (place == row + 1), j, 0), 0)
        before += tl.sum(stays, 0)
    parent = tl.load(lines + 2 * line_stride + chosen)
    if number == 0:
        for line in tl.static_range(3):
            tl.store(rows + line * row_stride + row, tl.load(lines + line * line_stride + chosen))
        tl.store(rows + 3 * row_stride + row, chosen)
    c = number * block + tl.arange(0, block)
    inherited = tl.load(bias + parent * bias_stride + c, c < columns, other=0.0)
    own = c == tl.load(slots + row)
    tl.store(new_bias + row.to(tl.int64) * columns + c, tl.where(own, 0.0, inherited), c < columns)


def keep_level(
    lines: Int[Tensor, "3 K"],
    rows: Int[Tensor, "4 W"],
    threshold: Float[Tensor, ""],
    bias: Float[Tensor, "U M"],
    slots: Int[Tensor, "W"],
    *,
    best: bool,
) -> Float[Tensor, "W M"]:
    count, width, columns = lines.shape[1], rows.shape[1], bias.shape[1]
    kept = lines.new_empty(count, dtype=torch.uint8)
    new_bias = bias.new_empty((width, columns))
    paths = lines[1].view(torch.float64)
    choose_rows[(triton.cdiv(count, RANKED),)](
        paths, threshold, kept, count, width, best, RANKED, COMPARED, enable_fp_fusion=False
    )
    write_rows[(width, triton.cdiv(columns, COLUMNS))](
        kept,
        count,
        lines,
        lines.stride(0),
        rows,
        rows.stride(0),
        bias,
        bias.stride(0),
        slots,
        new_bias,
        columns,
        SCANNED,
        COLUMNS,
        enable_fp_fusion=False,
    )
    return new_bias
