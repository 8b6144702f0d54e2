"""Rows of a tree's verification, and the commit of the accepted path, in one kernel each; the PyTorch versions are
`verify.tree_rows` and `verify.accept_path`.

The history rule must give the same bits as in PyTorch, so no product may be fused with a sum. These kernels are
independent of models and of how the target chooses tokens.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor

from decoder.knobs import KNOB_GAP
from decoder.session.cuda_graph.device_state import (
    GROWTH,
    HISTORY,
    LEVEL,
    LEVELS,
    PARENT,
    ROW,
    SHARE_BITS,
    DeviceState,
)
from decoder.session.cuda_graph.draft import DraftPart
from decoder.session.cuda_graph.static_shapes import WINDOW
from decoder.session.cuda_graph.verify import Moves, TreeRows

COLUMNS = 1024
"""Number of cache slots of one program."""
COMPARED = 16
"""Number of possible ancestors that are compared with all nodes at a time."""
_PARENT, _LEVEL, _ROW, _LEVELS = map(tl.constexpr, (PARENT, LEVEL, ROW, LEVELS))
_WINDOW, _SHARE, _GAP = map(tl.constexpr, (WINDOW, 2.0**SHARE_BITS, KNOB_GAP))
_DEEPEST, _D0, _TAU_H, _TAU_L = (tl.constexpr(GROWTH.index(name)) for name in ("deepest", "d0", "tau_h", "tau_l"))
_ENABLED, _LATEST, _TARGET, _ETA_D, _ETA_H = (
    tl.constexpr(len(GROWTH) + HISTORY.index(name)) for name in ("enabled", "window", "target", "eta_d", "eta_h")
)


@triton.jit
def see_ancestors(
    nodes,
    node_stride,
    length,
    text,
    hidden,
    tokens,
    positions,
    slots,
    after,
    above,
    bias,
    columns,
    deepest,
    context,
    most_nodes: tl.constexpr,
    block: tl.constexpr,
):
    """Program for a block of one row's attention bias; the row's first program also writes its other inputs."""
    row, number, count = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    root = tl.load(length) - 1
    c, other = number * block + tl.arange(0, block), tl.arange(0, most_nodes)
    seen, ancestor = c <= root, other == 0
    node, steps = row.to(tl.int64), 0
    while (node > 0) & (steps < deepest):
        seen = seen | (c == root + node)
        ancestor = ancestor | (other == node)
        node = tl.load(nodes + _PARENT * node_stride + node)
        steps += 1
    tl.store(bias + row.to(tl.int64) * columns + c, tl.where(seen, 0.0, tl.load(hidden)), c < columns)
    if number == 0:
        tl.store(above + row * count + other, ancestor.to(tl.uint8), other < count)
        tl.store(tokens + row, tl.load(text + root + row))
        position = root - 1 + tl.load(nodes + _LEVEL * node_stride + row)
        tl.store(positions + row, tl.minimum(tl.maximum(position, 0), context - 1))
        tl.store(slots + row, root + row)
        tl.store(after + row, root + 1 + row)


@triton.jit
def _commit(
    after,
    outcome,
    outcome_stride,
    from_target,
    from_draft,
    length,
    depth,
    node,
    choice,
    drafted,
    there,
):
    """Writes the nodes of a path, the choices after them and the moves of their rows, each at the node's depth."""
    tl.store(outcome + depth, node.to(tl.int64), there)
    tl.store(outcome + outcome_stride + depth, choice, there)
    tl.store(after + depth, choice, there)
    below = there & (depth > 0)
    tl.store(from_target + depth - 1, length - 1 + node, below)
    tl.store(from_draft + depth - 1, length + drafted, below)


@triton.jit
def _learn(rule, share_of, shares, rounds, accepted, level, most: tl.constexpr):
    window = tl.load(rule + _LATEST)
    done = tl.load(rounds)
    share = tl.load(share_of + accepted + level * _LEVELS)
    at, s = done % window.to(tl.int64), tl.arange(0, most)
    known = tl.where(s == at, share, tl.load(shares + s, s < _WINDOW, other=0))
    mean = tl.sum(known, 0).to(tl.float64) / (window * _SHARE)
    acts = (done + 1).to(tl.float64) * tl.load(rule + _ENABLED) >= window
    excess = mean - tl.load(rule + _TARGET)
    d0, tau_h = tl.load(rule + _D0), tl.load(rule + _TAU_H)
    deeper = tl.maximum(d0 + tl.load(rule + _ETA_D) * excess, 1.0)
    deeper = tl.minimum(deeper, tl.load(rule + _DEEPEST) - 1.0)
    surer = tl.maximum(tau_h - tl.load(rule + _ETA_H) * excess, tl.load(rule + _TAU_L) + _GAP)
    surer = tl.minimum(surer, 1.0)
    # All threads must have read the state before it changes.
    tl.debug_barrier()
    tl.store(shares + at, share)
    tl.store(rounds, done + 1)
    tl.store(rule + _D0, tl.where(acts, deeper, d0))
    tl.store(rule + _TAU_H, tl.where(acts, surer, tau_h))


@triton.jit
def commit_path(
    nodes,
    node_stride,
    tokens,
    choices,
    above,
    length,
    text,
    committed,
    outcome,
    outcome_stride,
    from_target,
    from_draft,
    rule,
    share_of,
    shares,
    rounds,
    count,
    deepest,
    learns: tl.constexpr,
    most_nodes: tl.constexpr,
    most_shares: tl.constexpr,
    compared: tl.constexpr,
):
    n = tl.arange(0, most_nodes)
    there, tokens_before = n < count, tl.load(length)
    levels = tl.load(nodes + _LEVEL * node_stride + n, there, other=0)
    wrong = tl.zeros([most_nodes], tl.int32)
    for start in range(0, count, compared):
        j = start + tl.arange(0, compared)
        below = (j > 0) & (j < count)
        parent = tl.load(nodes + _PARENT * node_stride + j, below, other=0)
        missed = below & (tl.load(tokens + j, below, other=0) != tl.load(choices + parent))
        mask = tl.load(above + n[:, None] * count + j[None, :], there[:, None] & below[None, :], other=0)
        wrong += tl.sum(tl.where(missed[None, :], mask.to(tl.int32), 0), 1)
    level = tl.where(wrong == 0, levels, 0)
    accepted = tl.max(level, 0)
    choice = tl.load(choices + n, there, other=0)
    drafted = tl.load(nodes + _ROW * node_stride + n, there, other=0)
    # At each depth d beyond the end of the accepted path, the outcome has node d.
    beyond = (n >= accepted) & (n <= deepest)
    places = text + tokens_before
    _commit(
        places,
        outcome,
        outcome_stride,
        from_target,
        from_draft,
        tokens_before,
        level - 1,
        n,
        choice,
        drafted,
        level > 0,
    )
    _commit(places, outcome, outcome_stride, from_target, from_draft, tokens_before, n, n, choice, drafted, beyond)
    if learns:
        _learn(rule, share_of, shares, rounds, accepted, tl.max(levels, 0), most_shares)
    tl.debug_barrier()
    tl.store(committed, accepted)
    tl.store(length, tokens_before + accepted)


def tree_rows(target: DraftPart, state: DeviceState, nodes: int, deepest: int, slots: int) -> TreeRows:
    numbers = state.text.new_empty((4, nodes))
    above = numbers.new_empty((nodes, nodes), dtype=torch.bool)
    bias = target.store.new_empty((nodes, slots))
    tokens, positions, own, after = numbers.unbind()
    see_ancestors[(nodes, triton.cdiv(slots, COLUMNS))](
        state.nodes,
        state.nodes.stride(0),
        state.length,
        state.text,
        target.hidden,
        tokens,
        positions,
        own,
        after,
        above.view(torch.uint8),
        bias,
        slots,
        deepest,
        target.context,
        triton.next_power_of_2(nodes),
        COLUMNS,
        enable_fp_fusion=False,
    )
    return TreeRows(tokens, positions, own, bias, above, after)


def accept_path(state: DeviceState, rows: TreeRows, choices: Int[Tensor, "N"], deepest: int) -> Moves | None:
    moves, most_nodes = choices.new_empty((2, max(1, deepest))), triton.next_power_of_2(len(choices))
    commit_path[(1,)](
        state.nodes,
        state.nodes.stride(0),
        rows.tokens,
        choices,
        rows.above.view(torch.uint8),
        state.length,
        state.text,
        state.committed,
        state.outcome,
        state.outcome.stride(0),
        *moves,
        state.rule.vector,
        state.share_of,
        state.shares,
        state.rounds,
        len(choices),
        deepest,
        deepest > 0,
        most_nodes,
        triton.next_power_of_2(WINDOW),
        COMPARED,
        num_warps=max(4, most_nodes // 32),
        enable_fp_fusion=False,
    )
    return Moves(*moves.unbind()) if deepest else None
