"""A whole draft as one function of device tensors: every level of it, and the tree packed for its verification.

Rules are masks: rows that do not grow are computed and ignored. The tree is the one that `decoder.draft.model_drafter`
grows, node for node. Row r of the draft lies in the draft's slot `length` + r until the next draft.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.forward.static.static_forward import StaticForward, visibility
from decoder.session.cuda_graph.device_state import OUTCOME, PARENT, TOKEN, XP, Board
from decoder.session.cuda_graph.static_shapes import MOST_NODES, Shape
from decoder.tree_rules import breadth, least_probability


@dataclass(frozen=True)
class Side:
    """One model's part of a seat."""

    forward: StaticForward
    store: Float[Tensor, "L 2 H S D"]
    """The last slot is written by rows that have no place in the text."""
    vocabulary: int
    context: int

    def logits(
        self,
        tokens: Int[Tensor, "N"],
        places: Int[Tensor, "N"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """Logits of rows at these places of the text, over the ids that both models know."""
        rotation = self.forward.rotation(self.store, places.clamp(0, self.context - 1))
        return self.forward.computed(self.store, tokens, rotation, slots, bias)[:, : self.vocabulary]


@dataclass(frozen=True)
class _Level:
    """Nodes of one depth that may grow, as rows of the draft."""

    valid: Bool[Tensor, "W"]
    ids: Int[Tensor, "W"]
    """Which candidates they are; the root is 0."""
    paths: Float[Tensor, "W"]
    bias: Float[Tensor, "W S"]


@dataclass(frozen=True)
class _Children:
    """All candidates of one depth: `widest` after each row, in the order of the numbering."""

    valid: Bool[Tensor, "K"]
    tokens: Int[Tensor, "K"]
    parents: Int[Tensor, "K"]
    logprobs: Float[Tensor, "K"]
    paths: Float[Tensor, "K"]


def grow(side: Side, board: Board, shape: Shape, slots: int) -> None:
    """Drafts a tree after the text and leaves it on the board and in the report."""
    device = board.length.device
    level = _Level(
        valid=(board.length < side.context)[None],
        ids=torch.zeros(1, dtype=torch.int64, device=device),
        paths=torch.zeros(1, dtype=torch.float64, device=device),
        bias=visibility(board.length, None, slots, side.store.dtype),
    )
    logits = _catch_up(side, board, shape.first, slots)
    thresholds = _thresholds(board, shape, side.context)
    own = board.length + torch.arange(shape.rows, device=device)
    places = board.length - 1 + torch.arange(shape.deepest, device=device)
    grown: list[_Children] = []
    rows: list[Int[Tensor, K]] = []
    first, number = 0, 1
    for depth, width in enumerate((*shape.widths[1:], 0), 1):
        children = _children(logits, level, board, shape)
        grown.append(children)
        if not width:
            rows.append(torch.zeros_like(children.tokens))
            break
        order = _growing(children, board, shape, thresholds[depth], width)
        slots_of_rows = own[first : first + width]
        level, tokens = _next(children, order, level, slots_of_rows, number)
        logits = side.logits(tokens, places[depth].expand(width), slots_of_rows, level.bias)
        # One that does not grow has no row; its number here is another's, and nobody asks for it.
        rows.append(order + (first - 1))
        first, number = first + width, number + len(order)
    _pack(board, shape, grown, torch.cat(rows))


def _catch_up(side: Side, board: Board, rows: int, slots: int) -> Float[Tensor, "1 V"]:
    """Reads the last so many tokens, known or not, and returns the logits after the last."""
    device = board.length.device
    places = board.length + torch.arange(-rows, 0, device=device)
    tokens = board.text.index_select(0, places.clamp(min=0))
    aside = places.masked_fill(places < 0, side.store.shape[3] - 1)
    seen = torch.ones((rows, rows), dtype=torch.bool, device=device).tril()
    bias = visibility(places[0], seen, slots, side.store.dtype)
    return side.logits(tokens, places, aside, bias)[-1:]


def _thresholds(board: Board, shape: Shape, context: int) -> Float[Tensor, "D"]:
    """The path probability by depth from which a node grows; infinite where none may."""
    depths = torch.arange(shape.deepest, dtype=torch.float64, device=board.length.device)
    chances: Float[Tensor, D] = least_probability(board.rule.numbers, depths, XP)
    return chances.masked_fill(depths >= context - board.length, torch.inf)


def best_tokens(logits: Float[Tensor, "W V"], count: int) -> tuple[Int[Tensor, "W B"], Float[Tensor, "W B"]]:
    """The most probable tokens of each row and their log-probabilities; ties by the lower id, softmax in float32."""
    logprobs = logits.float().log_softmax(-1)
    tokens: list[Int[Tensor, "W 1"]] = []
    values: list[Float[Tensor, "W 1"]] = []
    for rank in range(count):
        if rank:
            logprobs = logprobs.scatter(-1, tokens[-1], -torch.inf)
        # argmax takes the first of equal values, which topk does not promise.
        tokens.append(logprobs.argmax(-1, keepdim=True))
        values.append(logprobs.gather(-1, tokens[-1]))
    return torch.cat(tokens, -1), torch.cat(values, -1).double()


def _children(logits: Float[Tensor, "W V"], level: _Level, board: Board, shape: Shape) -> _Children:
    count = min(shape.widest, logits.shape[1])
    tokens, logprobs = best_tokens(logits, count)
    valid = level.valid
    if count > 1:
        width = breadth(board.rule.numbers, logprobs[:, 0].exp(), XP)
        ranks = torch.arange(count, device=tokens.device)
        valid = (level.valid[:, None] & (ranks < width[:, None])).flatten()
    return _Children(
        valid=valid,
        tokens=tokens.flatten(),
        parents=level.ids[:, None].expand(-1, count).flatten(),
        logprobs=logprobs.flatten(),
        paths=(level.paths[:, None] + logprobs).flatten(),
    )


def _growing(
    children: _Children, board: Board, shape: Shape, threshold: Float[Tensor, ""], width: int
) -> Int[Tensor, "K"]:
    """Which of these nodes grow: the first is 1, the next 2, and so on; 0 for those that do not."""
    grows = children.valid & (children.paths.exp() >= threshold)
    if shape.best:
        most = board.rule.numbers.n_max.clamp(max=width)
        grows = grows & (by_probability(children.paths, grows) < most)
    return grows.cumsum(0) * grows


def by_probability(paths: Float[Tensor, "K"], among: Bool[Tensor, "K"]) -> Int[Tensor, "K"]:
    """How many of the nodes `among` which we choose are more probable than each, ties by their order."""
    chances = paths.masked_fill(~among, -torch.inf)
    order = chances.argsort(stable=True, descending=True)
    places = torch.arange(len(paths), device=paths.device)
    return torch.zeros_like(order).scatter_(0, order, places)


def _next(
    children: _Children, order: Int[Tensor, "K"], level: _Level, own: Int[Tensor, "W"], number: int
) -> tuple[_Level, Int[Tensor, "W"]]:
    """The level of those children that grow, whose first is candidate `number`, and their tokens."""
    indices = torch.arange(len(order), device=order.device)
    # Place 0 takes all that do not grow. More than a level has rows for grow only beyond the tree's last node.
    chosen = torch.zeros(len(order) + len(own) + 1, dtype=torch.int64, device=order.device)
    chosen = chosen.scatter_(0, order, indices)[1 : len(own) + 1]
    above = level.bias.index_select(0, chosen // (len(order) // len(level.ids)))
    below = _Level(
        valid=torch.arange(len(own), device=order.device) < order.amax(),
        ids=chosen + number,
        paths=children.paths.index_select(0, chosen),
        bias=above.scatter_(1, own[:, None], 0.0),
    )
    return below, children.tokens.index_select(0, chosen)


def _pack(board: Board, shape: Shape, grown: list[_Children], rows: Int[Tensor, "C"]) -> None:
    """Leaves the nodes that stay on the board, in their order, from place 1 on: the root's token stands in the text."""
    valid = torch.cat([children.valid for children in grown])
    paths = torch.cat([children.paths for children in grown])
    tokens = torch.cat([children.tokens for children in grown])
    logprobs = torch.cat([children.logprobs for children in grown])
    depths = torch.cat([torch.full_like(children.tokens, depth) for depth, children in enumerate(grown, 1)])
    # In breadth-first order a node that is cut has only descendants that are cut too.
    ranks = by_probability(paths, valid) if shape.best else valid.cumsum(0) - 1
    kept = valid & (ranks < board.rule.numbers.n_max)
    numbers = kept.cumsum(0)
    places = numbers.masked_fill(~kept, MOST_NODES).clamp(max=MOST_NODES)
    renumbered = torch.cat([numbers.new_zeros(1), numbers])
    parents = renumbered.index_select(0, torch.cat([children.parents for children in grown]))
    lines = torch.stack([tokens, parents, depths, rows])
    nodes = lines.new_zeros((4, MOST_NODES + 1)).scatter_(1, places.expand(4, -1), lines)
    board.nodes.copy_(nodes[:, :MOST_NODES])
    board.logprobs.copy_(logprobs.new_zeros(MOST_NODES + 1).scatter_(0, places, logprobs)[:MOST_NODES])
    board.count.copy_(numbers[-1] + 1)
    told = torch.cat([board.count[None], board.nodes[TOKEN], board.nodes[PARENT]])
    board.report[OUTCOME:].copy_(torch.cat([told.double(), board.logprobs]))
