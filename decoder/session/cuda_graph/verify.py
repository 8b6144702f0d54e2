"""A whole verification as one function of device tensors: the target's pass, the acceptance of nodes, the commit.

The target's keys and values of the tree's rows are in consecutive cache slots, which begin at the root's position. The
commit moves the accepted path's keys and values, in both models, to the slots directly after the text, and appends the
path's tokens and one more token to the text.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.sampling.noise import DeviceSampling
from decoder.session.cuda_graph.device_state import LEVEL, LEVELS, PARENT, ROW, SHARE_BITS, XP, DeviceState
from decoder.session.cuda_graph.draft import DraftPart, Part
from decoder.tree_rules import adapted

Choose = Callable[[Float[Tensor, "N V"], DeviceSampling, Int[Tensor, "D"], Int[Tensor, "N"]], Int[Tensor, "N"]]
"""See `DeviceVerifier.choose`. A node is accepted if its parent is accepted and its token is the target's choice after
the parent. Siblings have different tokens, so at most one of them is accepted.
"""


@dataclass(frozen=True)
class TreeRows:
    """Inputs of a verification's pass, one row for each node."""

    tokens: Int[Tensor, "N"]
    positions: Int[Tensor, "N"]
    """Positions in the text; padding rows have arbitrary positions within the context."""
    slots: Int[Tensor, "N"]
    bias: Float[Tensor, "N M"]
    above: Bool[Tensor, "N N"]
    """See `ancestors`."""
    after: Int[Tensor, "N"]
    """Consecutive positions in the text, from the position after the root on."""


@dataclass(frozen=True)
class Moves:
    """Cache slots from which the accepted path's keys and values move, in the path's order without its root."""

    target: Int[Tensor, "D"]
    draft: Int[Tensor, "D"]


def tree_rows(target: DraftPart, state: DeviceState, nodes: int, deepest: int, slots: int) -> TreeRows:
    """Inputs of a pass of `nodes` rows over `slots` cache slots."""
    around = state.length + state.steps(-2, nodes)
    row_slots = around[1:-1]
    above = ancestors(state.nodes[PARENT, :nodes], deepest, state.identity)
    return TreeRows(
        tokens=state.text.index_select(0, row_slots),
        positions=(around[0] + state.nodes[LEVEL, :nodes]).clamp(0, target.context - 1),
        slots=row_slots,
        bias=tree_bias(target, state.steps(0, slots), row_slots, above),
        above=above,
        after=around[2:],
    )


def accept_path(state: DeviceState, rows: TreeRows, choices: Int[Tensor, "N"], deepest: int) -> Moves | None:
    """Accepts the nodes that the target has chosen, commits their path, and applies the history rule; returns the moves
    that the commit needs, None for a tree without levels below the root.
    """
    nodes = len(choices)
    parents, levels = state.nodes[PARENT, :nodes], state.nodes[LEVEL, :nodes]
    wrong = rows.tokens != choices.index_select(0, parents)
    # The accepted nodes form a path, so they have different levels. All other nodes are assigned level 0.
    accepted = torch.where((rows.above & wrong)[:, 1:].any(-1), state.steps(0, 1), levels)
    torch.amax(accepted, 0, out=state.committed)
    # path[d] is the accepted node at depth d. Beyond the end of the accepted path, path[d] is d, so that the target's
    # row d is copied to its own slot.
    path = state.steps(-1, deepest + 1).scatter(0, accepted, state.steps(0, nodes))[1:]
    moves = None
    if deepest:
        # The draft model has no keys and values of leaves. They are not needed: only the last node of the path can be a
        # leaf, and the next draft reads the text's last two tokens again.
        drafted = state.length + state.nodes[ROW].index_select(0, path[1:])
        moves = Moves(target=rows.slots[0] + path[1:], draft=drafted)
        _learn(state, levels.amax())
    _commit(state, path, choices.index_select(0, path), rows.after)
    return moves


@dataclass(frozen=True)
class VerificationOperators:
    """The functions of a verification that kernels may replace."""

    tree_rows: Callable[[DraftPart, DeviceState, int, int, int], TreeRows] = tree_rows
    accept_path: Callable[[DeviceState, TreeRows, Tensor, int], Moves | None] = accept_path


def verify(
    target: DraftPart,
    draft: Part | None,
    state: DeviceState,
    nodes: int,
    deepest: int,
    slots: int,
    choose: Choose,
    operators: VerificationOperators,
) -> None:
    """Verifies the state's tree in a pass of `nodes` rows over `slots` cache slots, and commits the accepted path, in
    the draft's store too. No node may be deeper than `deepest`.
    """
    rows = operators.tree_rows(target, state, nodes, deepest, slots)
    logits = target.rotated_logits(rows.tokens, target.rotation(rows.positions), rows.slots, rows.bias)
    state.largest[:nodes].copy_(logits.amax(-1))
    choices = choose(logits, state.sampling, rows.after[: deepest + 1], state.nodes[LEVEL, :nodes])
    moves = operators.accept_path(state, rows, choices, deepest)
    if moves:
        target.move(moves.target, rows.after[:deepest])
        if draft:
            draft.move(moves.draft, rows.after[:deepest])


def ancestors(parents: Int[Tensor, "N"], deepest: int, identity: Float[Tensor, "M M"]) -> Bool[Tensor, "N N"]:
    """Each row marks a node and its ancestors. In `parents`, the root's parent is the root."""
    count, reach = len(parents), 1
    ways = identity[:count, :count].scatter(1, parents[:, None], 1.0)
    while reach < deepest:
        ways = ways @ ways
        reach *= 2
    return ways > 0


def tree_bias(
    side: DraftPart, columns: Int[Tensor, "S"], row_slots: Int[Tensor, "N"], above: Bool[Tensor, "N N"]
) -> Float[Tensor, "N S"]:
    """Each row attends to all slots before the tree and, within the tree, to itself and its ancestors."""
    before = (columns < row_slots[0]).expand(len(row_slots), -1)
    return side.bias(before.index_copy(1, row_slots, above))


def _commit(state: DeviceState, path: Int[Tensor, "D"], tokens: Int[Tensor, "D"], after: Int[Tensor, "N"]) -> None:
    """Appends `tokens` to the text. Entries after the end of the accepted path are written too, but the text's length
    excludes them, and later tokens overwrite them.
    """
    state.text.index_copy_(0, after[: len(path)], tokens)
    state.length.add_(state.committed)
    torch.stack((path, tokens), out=state.outcome[:, : len(path)])


def _learn(state: DeviceState, level: Int[Tensor, ""]) -> None:
    """Applies the history rule after a tree whose deepest node has this level; bit-identical to `KnobState.learn`."""
    growth, history = state.rule.growth, state.rule.history
    share = state.share_of.index_select(0, torch.add(state.committed, level, alpha=LEVELS)[None])
    state.shares.index_copy_(0, (state.rounds % history.window).long()[None], share)
    state.rounds.add_(1)
    mean = state.shares.sum() / (history.window * 2.0**SHARE_BITS)
    acts = state.rounds * history.enabled >= history.window
    for now, after in zip((growth.d0, growth.tau_h), adapted(growth, history, mean, XP), strict=True):
        torch.where(acts, after, now, out=now)
