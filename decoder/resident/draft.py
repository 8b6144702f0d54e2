"""A whole draft as one function of device tensors: every level of it, and the tree packed for its verification.

Rules are masks: rows that do not grow are computed and ignored. The tree is the one that `decoder.draft.drafter` grows,
node for node. Row r of the draft lies in the draft's slot `length` + r until the next draft.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.resident.board import NOT_FORWARDED, OUTCOME, PARENT, TOKEN, Board
from decoder.resident.forward import StaticForward, visibility
from decoder.resident.shape import MOST_NODES, Shape


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
        positions = places.clamp(0, self.context - 1)
        return self.forward(self.store, tokens, positions, slots, bias)[:, : self.vocabulary]


@dataclass(frozen=True)
class _Level:
    """Nodes of one depth that may grow, as rows of the draft."""

    valid: Bool[Tensor, "W"]
    ids: Int[Tensor, "W"]
    """Which candidates they are; the root is 0."""
    paths: Float[Tensor, "W"]
    seen: Bool[Tensor, "W R"]
    """Which of the draft's rows each sees."""


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
        seen=torch.zeros((1, max(1, shape.rows)), dtype=torch.bool, device=device),
    )
    logits = _catch_up(side, board, shape.first, slots)
    total = torch.zeros((), dtype=torch.int64, device=device)
    grown: list[_Children] = []
    rows: list[Int[Tensor, K]] = []
    first = 0
    for depth in range(shape.deepest):
        children = _children(logits, level, board, shape, total)
        total = total + children.valid.sum()
        grown.append(children)
        if depth + 1 == shape.deepest:
            rows.append(torch.full_like(children.tokens, NOT_FORWARDED))
            break
        ranks = _growing(children, board, shape, depth + 1, side.context)
        number = 1 + sum(len(earlier.tokens) for earlier in grown[:-1])
        level, chosen = _next(children, ranks, level, shape, depth + 1, first, number)
        rows.append((ranks + first).masked_fill(ranks < 0, NOT_FORWARDED))
        logits = _forward(side, board, children.tokens.index_select(0, chosen), level, depth + 1, first, slots)
        first += shape.widths[depth + 1]
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


def _forward(
    side: Side, board: Board, tokens: Int[Tensor, "W"], level: _Level, depth: int, first: int, slots: int
) -> Float[Tensor, "W V"]:
    own = board.length + first + torch.arange(len(tokens), device=tokens.device)
    bias = visibility(board.length, level.seen, slots, side.store.dtype)
    return side.logits(tokens, (board.length - 1 + depth).expand(len(tokens)), own, bias)


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


def _children(
    logits: Float[Tensor, "W V"], level: _Level, board: Board, shape: Shape, total: Int[Tensor, ""]
) -> _Children:
    """The children of all rows; `total` nodes were drafted above them."""
    knobs, count = board.knobs, min(shape.widest, logits.shape[1])
    tokens, logprobs = best_tokens(logits, count)
    confidence = logprobs[:, 0].exp()
    unsure = torch.where(confidence < knobs["tau_l"], knobs["wide"], knobs["middle"])
    breadth = torch.where(confidence >= knobs["tau_h"], knobs["narrow"], unsure)
    ranks = torch.arange(count, device=tokens.device)
    valid = (level.valid[:, None] & (ranks < breadth[:, None])).flatten()
    if not shape.best:
        valid = valid & (total + valid.cumsum(0) <= knobs["n_max"])
    return _Children(
        valid=valid,
        tokens=tokens.flatten(),
        parents=level.ids[:, None].expand(-1, count).flatten(),
        logprobs=logprobs.flatten(),
        paths=(level.paths[:, None] + logprobs).flatten(),
    )


def _growing(children: _Children, board: Board, shape: Shape, depth: int, context: int) -> Int[Tensor, "K"]:
    """Row of each of these nodes within its level, -1 where it does not grow."""
    knobs = board.knobs
    chances = children.paths.exp()
    base = (knobs["d0"] + 0.5).floor()
    deepest = torch.minimum(knobs["deepest"], context - board.length)
    grows = children.valid & (chances >= knobs["stop"]) & (depth < deepest)
    grows = grows & ((chances >= knobs["deep"]) | (depth < base))
    if shape.best:
        most = knobs["n_max"].clamp(max=shape.widths[depth])
        grows = grows & (by_probability(children.paths, grows) < most)
    rows = grows.cumsum(0) - 1
    return rows.masked_fill(~(grows & (rows < shape.widths[depth])), NOT_FORWARDED)


def by_probability(paths: Float[Tensor, "K"], among: Bool[Tensor, "K"]) -> Int[Tensor, "K"]:
    """How many of the nodes `among` which we choose are more probable than each, ties by their order."""
    chances = paths.masked_fill(~among, -torch.inf)
    order = chances.argsort(stable=True, descending=True)
    places = torch.arange(len(paths), device=paths.device)
    return torch.zeros_like(order).scatter_(0, order, places)


def _next(
    children: _Children, ranks: Int[Tensor, "K"], level: _Level, shape: Shape, depth: int, first: int, number: int
) -> tuple[_Level, Int[Tensor, "W"]]:
    """The level of those children that grow, and which of them they are; child 0 is candidate `number`."""
    width, device = shape.widths[depth], ranks.device
    places = ranks.masked_fill(ranks < 0, width)
    indices = torch.arange(len(ranks), device=device)
    chosen = torch.zeros(width + 1, dtype=torch.int64, device=device).scatter_(0, places, indices)[:width]
    own = torch.arange(width, device=device)
    columns = torch.arange(level.seen.shape[1], device=device)
    above = level.seen.index_select(0, chosen // (len(ranks) // len(level.ids)))
    below = _Level(
        valid=own <= ranks.max(),
        ids=chosen + number,
        paths=children.paths.index_select(0, chosen),
        seen=above | (columns == (own + first)[:, None]),
    )
    return below, chosen


def _pack(board: Board, shape: Shape, grown: list[_Children], rows: Int[Tensor, "C"]) -> None:
    """Leaves the nodes that stay on the board, in their order, from place 1 on: the root's token stands in the text."""
    valid = torch.cat([children.valid for children in grown])
    paths = torch.cat([children.paths for children in grown])
    tokens = torch.cat([children.tokens for children in grown])
    logprobs = torch.cat([children.logprobs for children in grown])
    depths = torch.cat([torch.full_like(children.tokens, depth) for depth, children in enumerate(grown, 1)])
    kept = valid & (by_probability(paths, valid) < board.knobs["n_max"]) if shape.best else valid
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
