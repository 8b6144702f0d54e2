"""A whole verification as one function of device tensors: the target's pass, what it accepts, and its commit.

The tree's rows lie in the target's slots from the root's place on; afterwards those of the accepted path follow the
text without gaps, in both models, and the text is longer by that path and one token more.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from decoder.forward.static.static_forward import visibility
from decoder.session.cuda_graph.device_state import DEPTH, PARENT, ROW, TOKEN, XP, Board
from decoder.session.cuda_graph.draft import Side
from decoder.session.cuda_graph.static_shapes import WINDOW
from decoder.tree_rules import adapted

SHARE_BITS = 57
"""A share of at most 32 levels is a whole number of 2^-57; up to 63 of them add up in 64 bits without rounding."""


@dataclass(frozen=True)
class _Path:
    """What the target chose."""

    nodes: Int[Tensor, "D"]
    """The accepted path from depth 1 on; surplus entries are 0."""
    length: Int[Tensor, ""]
    bonus: Int[Tensor, ""]


def verify(target: Side, draft: Side | None, board: Board, nodes: int, deepest: int, slots: int) -> None:
    """Verifies the board's tree and commits what is right.

    Args:
        target: Computes.
        draft: Its keys and values move too; None where nothing is drafted.
        board: Holds a tree of at most `nodes` nodes.
        nodes: Rows of the pass.
        deepest: No node is deeper.
        slots: That attention reads; all of the tree's are among them.
    """
    root = board.length - 1
    tree = board.nodes[:, :nodes].clone()
    tree[TOKEN, :1].copy_(board.text.index_select(0, root[None]))
    above = ancestors(tree[PARENT], deepest)
    own = root + torch.arange(nodes, device=root.device)
    bias = visibility(root, above, slots, target.store.dtype)
    choices = target.logits(tree[TOKEN], root + tree[DEPTH], own, bias).float().argmax(-1)
    path = _accept(tree, above, choices, board.count, deepest)
    if deepest:
        _move(target, own.index_select(0, path.nodes), board.length, path.length)
    if draft and deepest:
        # A leaf, which has no row, is the last of its path, and the next draft reads the last two tokens anew.
        _move(draft, board.length + tree[ROW].index_select(0, path.nodes), board.length, path.length)
        _learn(board, path.length, tree[DEPTH].amax())
    _commit(board, tree[TOKEN].index_select(0, path.nodes), path)


def ancestors(parents: Int[Tensor, "N"], deepest: int) -> Bool[Tensor, "N N"]:
    """Row = node, column = whether that node is itself or above it; the root is its own parent."""
    seen = torch.eye(len(parents), dtype=torch.bool, device=parents.device)
    reach = 1
    while reach <= deepest:
        seen = seen | seen.index_select(0, parents)
        parents = parents.index_select(0, parents)
        reach *= 2
    return seen


def _accept(
    tree: Int[Tensor, "4 N"],
    above: Bool[Tensor, "N N"],
    choices: Int[Tensor, "N"],
    count: Int[Tensor, ""],
    deepest: int,
) -> _Path:
    places = torch.arange(tree.shape[1], device=tree.device)
    right = (tree[TOKEN] == choices.index_select(0, tree[PARENT])) | (places == 0)
    right = right & (places < count)
    accepted = ~(above & ~right).any(-1)
    last = tree[DEPTH].masked_fill(~accepted, -1).argmax()
    length = tree[DEPTH].index_select(0, last[None])[0]
    on_path = above.index_select(0, last[None])[0] & (places > 0)
    depths = (tree[DEPTH] - 1).masked_fill(~on_path, deepest)
    nodes = torch.zeros(deepest + 1, dtype=torch.int64, device=tree.device).scatter_(0, depths, places)[:deepest]
    return _Path(nodes, length, choices.index_select(0, last[None])[0])


def _move(side: Side, sources: Int[Tensor, "D"], first: Int[Tensor, ""], count: Int[Tensor, ""]) -> None:
    """Moves the first `count` of these slots to the slots from `first` on; the others stay."""
    steps = torch.arange(len(sources), device=sources.device)
    places = first + steps
    moved = side.store.index_select(3, torch.where(steps < count, sources, places))
    side.store.index_copy_(3, places, moved)


def _commit(board: Board, tokens: Int[Tensor, "D"], path: _Path) -> None:
    steps = torch.arange(len(tokens) + 1, device=tokens.device)
    last = steps == path.length
    surplus = tokens.new_zeros(1)
    board.text.index_copy_(0, board.length + steps, torch.where(last, path.bonus, torch.cat([tokens, surplus])))
    board.length.add_(path.length + 1)
    told = torch.where(last, path.bonus, torch.cat([path.nodes, surplus]))
    board.report[: 1 + len(told)].copy_(torch.cat([(path.length + 1)[None], told]))


def _learn(board: Board, accepted: Int[Tensor, ""], levels: Int[Tensor, ""]) -> None:
    """History's step: the same numbers as the host's, to the last bit."""
    rule = board.rule.numbers
    drafted = levels > 0
    share = accepted.double() / levels.clamp(min=1)
    place = (board.rounds % rule.window.long()).masked_fill(~drafted, WINDOW)
    board.shares.index_copy_(0, place[None], (share * 2.0**SHARE_BITS).long()[None])
    board.rounds.add_(drafted)
    total = board.shares[:WINDOW].sum().double() * 2.0**-SHARE_BITS
    acts = drafted & (board.rounds >= rule.window) & (rule.history > 0)
    for now, after in zip((rule.d0, rule.tau_h), adapted(rule, total / rule.window, XP), strict=True):
        now.copy_(torch.where(acts, after, now))
