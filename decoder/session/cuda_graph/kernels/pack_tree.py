"""Packing of a draft's candidates as a tree, in two kernels; the PyTorch version is `draft.pack_tree`.

The first kernel decides which candidates become nodes, by their rank (see `choose_nodes`). The second kernel writes the
nodes. Neither kernel depends on a model or on the origin of the candidates.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor

from decoder.session.cuda_graph.device_state import LEVEL, LOGPROB, OWN_LOGPROB, PARENT, ROW, TOKEN, DeviceState
from decoder.session.cuda_graph.draft import DraftLayout, DraftRule, Grown

RANKED, COMPARED = 16, 256
"""Number of candidates that one program ranks, and number of candidates with which it compares them at a time."""
WRITTEN, SCANNED = 16, 256
"""Number of nodes that one program writes, and number of candidates with which it compares them at a time."""
_TOKEN, _PARENT, _LEVEL, _ROW, _LOGPROB, _OWN_LOGPROB = map(
    tl.constexpr, (TOKEN, PARENT, LEVEL, ROW, LOGPROB, OWN_LOGPROB)
)


def iterations(candidates: int, rows: int) -> tuple[int, int]:
    """For each kernel, the number of blocks of candidates or rows that one program reads one after the other."""
    return -(-candidates // COMPARED), 2 * -(-candidates // SCANNED) + -(-(rows - 1) // SCANNED)


@triton.jit
def _value(
    paths,
    row_paths,
    depths,
    thresholds,
    candidates,
    there,
    children,
    best: tl.constexpr,
):
    """Path log-probability of each candidate; minus infinity if its parent gets no children. Unless `best`, all finite
    values are replaced by 0.
    """
    row = candidates // children
    least = tl.load(thresholds + tl.load(depths + row, there, other=0))
    grows = tl.load(row_paths + row, there, other=float("-inf")) >= least
    path = tl.load(paths + candidates, there & grows, other=float("-inf"))
    return path if best else tl.where(path > float("-inf"), 0.0, path)


@triton.jit
def choose_nodes(
    paths,
    row_paths,
    depths,
    thresholds,
    n_max,
    kept,
    count,
    children,
    places,
    best: tl.constexpr,
    ranked: tl.constexpr,
    compared: tl.constexpr,
):
    """Stores whether each candidate is a node: its value is finite, and its rank (value, then index) is < `n_max`."""
    i = tl.program_id(0) * ranked + tl.arange(0, ranked)
    value = _value(paths, row_paths, depths, thresholds, i, i < count, children, best)[:, None]
    rank = tl.zeros([ranked], tl.int32)
    for start in range(0, count, compared):
        j = start + tl.arange(0, compared)
        other = _value(paths, row_paths, depths, thresholds, j, j < count, children, best)[None, :]
        before = (other > value) | ((other == value) & (j[None, :] < i[:, None]))
        rank += tl.sum((before & (j < count)[None, :]).to(tl.int32), 1)
    fits = (rank < places) & (rank.to(tl.float64) < tl.load(n_max))
    possible = tl.sum((value > float("-inf")).to(tl.int32), 1) > 0
    tl.store(kept + i, (fits & possible).to(tl.uint8), i < count)


@triton.jit
def write_nodes(
    kept,
    count,
    children,
    tokens,
    logprobs,
    own_logprobs,
    chosen,
    offsets,
    levels,
    rows,
    nodes,
    node_stride,
    text,
    places,
    most,
    own: tl.constexpr,
    written: tl.constexpr,
    scanned: tl.constexpr,
):
    """Program for a block of nodes: writes them, and their tokens to the text. Columns after the last node get the
    values of the last candidate, a padding candidate of level 0.
    """
    n = tl.program_id(0) * written + tl.arange(0, written)
    candidate = tl.zeros([written], tl.int32)
    total = 0
    for start in range(0, count, scanned):
        j = start + tl.arange(0, scanned)
        stays = tl.load(kept + j, j < count, other=0).to(tl.int32)
        place = tl.where(stays != 0, total + tl.cumsum(stays, 0), 0)
        candidate += tl.sum(tl.where(place[None, :] == n[:, None] + 1, j[None, :], 0), 1)
        total += tl.sum(stays, 0)
    candidate = tl.where(n < total, candidate, count - 1)
    parent_row = candidate // children
    above = tl.load(chosen + parent_row) + tl.load(offsets + parent_row)
    parent = tl.zeros([written], tl.int32)
    for start in range(0, count, scanned):
        j = start + tl.arange(0, scanned)
        stays = tl.load(kept + j, j < count, other=0).to(tl.int32)
        parent += tl.sum(tl.where(j[None, :] <= above[:, None], stays[None, :], 0), 1)
    row = tl.zeros([written], tl.int32)
    for start in range(1, rows, scanned):
        j = start + tl.arange(0, scanned)
        of_row = tl.load(chosen + j, j < rows, other=0) + tl.load(offsets + j, j < rows, other=0)
        row += tl.sum(((of_row[None, :] < candidate[:, None]) & (j < rows)[None, :]).to(tl.int32), 1)
    there = n < most
    token = tl.load(tokens + candidate)
    column = nodes + 1 + n
    tl.store(column + _TOKEN * node_stride, token, there)
    tl.store(column + _PARENT * node_stride, parent.to(tl.int64), there)
    tl.store(column + _LEVEL * node_stride, tl.load(levels + parent_row), there)
    tl.store(column + _ROW * node_stride, row.to(tl.int64), there)
    logprob = tl.load(logprobs + candidate).to(tl.float64)
    tl.store(column + _LOGPROB * node_stride, logprob.to(tl.int64, bitcast=True), there)
    if own:
        logprob = tl.load(own_logprobs + candidate).to(tl.float64)
        tl.store(column + _OWN_LOGPROB * node_stride, logprob.to(tl.int64, bitcast=True), there)
    tl.store(text + tl.load(places + n, there, other=0), token, there)


def pack_tree(state: DeviceState, layout: DraftLayout, rule: DraftRule, grown: Grown, places: Int[Tensor, "N"]) -> None:
    count, most = grown.lines.shape[1], len(places)
    kept = grown.lines.new_empty(count, dtype=torch.uint8)
    choose_nodes[(triton.cdiv(count, RANKED),)](
        grown.lines[1].view(torch.float64),
        grown.paths,
        layout.depths,
        rule.thresholds,
        state.rule.n_max,
        kept,
        count,
        layout.children,
        most,
        layout.best,
        RANKED,
        COMPARED,
        enable_fp_fusion=False,
    )
    write_nodes[(triton.cdiv(most, WRITTEN),)](
        kept,
        count,
        layout.children,
        grown.lines[0],
        grown.logprobs,
        grown.logprobs if grown.own_logprobs is None else grown.own_logprobs,
        grown.rows[3],
        layout.offsets,
        layout.levels,
        layout.rows,
        state.nodes,
        state.nodes.stride(0),
        state.text,
        places,
        most,
        grown.own_logprobs is not None,
        WRITTEN,
        SCANNED,
        enable_fp_fusion=False,
    )
