"""A whole verification as one function of device tensors: the target's pass, what it accepts, and its commit.

The tree's rows lie in the target's slots from the root's place on; afterwards those of the accepted path follow the
text without gaps, in both models, and the text is longer by that path and one token more.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.session.cuda_graph.device_state import LEVEL, LEVELS, PARENT, ROW, SHARE_BITS, XP, Board
from decoder.session.cuda_graph.draft import Side
from decoder.tree_rules import adapted

Choose = Callable[[Float[Tensor, "N V"]], Int[Tensor, "N"]]
"""The token that the target chooses after each row. What follows a node's choice is accepted; siblings differ."""


def verify(
    target: Side, draft: Side | None, board: Board, nodes: int, deepest: int, slots: int, choose: Choose
) -> None:
    """Verifies the board's tree and commits what is right.

    Args:
        target: Computes.
        draft: Its keys and values move too; None where nothing is drafted.
        board: Holds a tree of at most `nodes` nodes.
        nodes: Rows of the pass.
        deepest: No node is deeper.
        slots: That attention reads; all of the tree's are among them.
        choose: The verifier's.
    """
    around = board.length + board.steps(-2, nodes)
    own, after = around[1:-1], around[2:]
    parents, levels = board.nodes[PARENT, :nodes], board.nodes[LEVEL, :nodes]
    above = ancestors(parents, deepest, board.identity)
    bias = tree_bias(target, board.steps(0, slots), own, above)
    tokens = board.text.index_select(0, own)
    choices = choose(target.logits(tokens, around[0] + levels, own, bias))
    wrong = tokens != choices.index_select(0, parents)
    # Right nodes are one path: at each level from 1 on there is one at most. Level 0 takes all others.
    accepted = torch.where((above & wrong)[:, 1:].any(-1), board.steps(0, 1), levels)
    torch.amax(accepted, 0, out=board.committed)
    # Surplus places of the path hold the nodes that are there already.
    path = board.steps(-1, deepest + 1).scatter(0, accepted, board.steps(0, nodes))[1:]
    if deepest:
        _move(target, own[0] + path[1:], after[:deepest])
    if draft and deepest:
        # A leaf, which has no row, is the last of its path, and the next draft reads the last two tokens anew.
        _move(draft, board.length + board.nodes[ROW].index_select(0, path[1:]), after[:deepest])
        _learn(board, levels.amax())
    _commit(board, path, choices.index_select(0, path), after)


def ancestors(parents: Int[Tensor, "N"], deepest: int, identity: Float[Tensor, "M M"]) -> Bool[Tensor, "N N"]:
    """Row = node, column = whether that node is itself or above it; the root is its own parent."""
    count, reach = len(parents), 1
    ways = identity[:count, :count].scatter(1, parents[:, None], 1.0)
    while reach < deepest:
        ways = ways @ ways
        reach *= 2
    return ways > 0


def tree_bias(
    side: Side, columns: Int[Tensor, "S"], own: Int[Tensor, "N"], above: Bool[Tensor, "N N"]
) -> Float[Tensor, "N S"]:
    """The bias of rows that see the slots before their own, and of these what is above them: always the first."""
    before = (columns < own[0]).expand(len(own), -1)
    return side.bias(before.index_copy(1, own, above))


def _move(side: Side, sources: Int[Tensor, "D"], places: Int[Tensor, "D"]) -> None:
    side.store.index_copy_(3, places, side.store.index_select(3, sources))


def _commit(board: Board, path: Int[Tensor, "D"], tokens: Int[Tensor, "D"], after: Int[Tensor, "N"]) -> None:
    """Appends the tokens, of which those that are no node's successor are surplus."""
    board.text.index_copy_(0, after[: len(path)], tokens)
    board.length.add_(board.committed)
    torch.stack((path, tokens), out=board.outcome[:, : len(path)])


def _learn(board: Board, level: Int[Tensor, ""]) -> None:
    """History's step, where the deepest node is of this level: the same numbers as the host's, to the last bit."""
    rule = board.rule.numbers
    share = board.share_of.index_select(0, torch.add(board.committed, level, alpha=LEVELS)[None])
    board.shares.index_copy_(0, (board.rounds % rule.window).long()[None], share)
    board.rounds.add_(1)
    mean = board.shares.sum() / (rule.window * 2.0**SHARE_BITS)
    acts = board.rounds * rule.history >= rule.window
    for now, after in zip((rule.d0, rule.tau_h), adapted(rule, mean, XP), strict=True):
        torch.where(acts, after, now, out=now)
