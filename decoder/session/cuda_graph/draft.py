"""Drafting of a whole tree as one function of device tensors, which computes all levels and packs the tree's nodes.

Growth rules are applied as masks: rows of nodes without children are computed and ignored. The tree equals the tree
that `decoder.draft.model_drafter` grows, except for the order of equally probable nodes. Probabilities are stored as
logarithms, with minus infinity for candidates outside the tree. Until the next draft, the draft model's keys and values
of row r (the root is row 0) are in its cache slot `length` - 1 + r.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.forward.static.static_forward import StaticForward
from decoder.session.cuda_graph.device_state import XP, DeviceState
from decoder.session.cuda_graph.static_shapes import MOST_NODES, Shape
from decoder.tree_rules import Growth, breadth, least_probability
from decoder.verify.verifier import DeviceVerifier

PLACES = MOST_NODES - 1
"""Maximum number of drafted nodes of a tree."""
WHOLE, PART = 8000, 128
"""CUDA's top-k takes one kernel for rows shorter than WHOLE, and 22 for longer rows. So longer rows are divided into
parts of PART tokens. With 128 tokens, there are about as many parts as tokens in the best parts.
"""


class Side:
    """One model's part of a `GraphSlot`: its static forward form and its store of keys and values."""

    def __init__(
        self, forward: StaticForward, store: Float[Tensor, "L 2 H S D"], vocabulary: int, context: int
    ) -> None:
        """The last cache slots of `store` must be free: rows at positions outside the text write to these slots."""
        self.forward = forward
        self.store = store
        self.vocabulary = vocabulary
        self.context = context
        hidden = torch.full((), torch.finfo(store.dtype).min, dtype=store.dtype, device=store.device)
        self._biases = torch.zeros_like(hidden), hidden

    def logits(
        self, tokens: Int[Tensor, "N"], places: Int[Tensor, "N"], slots: Int[Tensor, "N"], bias: Float[Tensor, "N M"]
    ) -> Float[Tensor, "N V"]:
        """Logits of rows at the positions `places` of the text, over the vocabulary that both models share."""
        return self.rotated_logits(tokens, self.rotation(places.clamp(0, self.context - 1)), slots, bias)

    def rotation(self, places: Int[Tensor, "N"]) -> Tensor:
        """Rotary embeddings of these positions of the text, as `rotated_logits` needs them."""
        return self.forward.rotation(self.store, places)

    def rotated_logits(
        self, tokens: Int[Tensor, "N"], rotation: Tensor, slots: Int[Tensor, "N"], bias: Float[Tensor, "N M"]
    ) -> Float[Tensor, "N V"]:
        """The same as `logits`, with the rotary embeddings computed in advance."""
        return self.forward.computed(self.store, tokens, rotation, slots, bias)[:, : self.vocabulary]

    def bias(self, visible: Bool[Tensor, "N M"]) -> Float[Tensor, "N M"]:
        """Bias on attention scores: 0 if a row may attend to a slot, else the least number of the dtype."""
        return torch.where(visible, *self._biases)


class Layout:
    """Index tables of rows and candidate nodes in drafts of one shape: constant device tensors, made before capture.

    Rows are the nodes that may get children, the root first, level after level. Each row has the same number of
    candidates for its children; candidates are in the order of their rows. After the rows of all levels there are
    padding rows, so that the number of candidates exceeds the number of nodes of any tree.
    """

    def __init__(self, shape: Shape, vocabulary: int, device: torch.device) -> None:
        def whole(numbers: list[int]) -> Int[Tensor, "N"]:
            return torch.tensor(numbers, device=device)

        self.first, self.best, self.deepest = shape.first, shape.best, shape.deepest
        self.children = min(shape.widest, vocabulary)
        """Number of candidates of each row."""
        self.even = shape.even or self.children == 1
        self.parts = parts(vocabulary, self.children)
        """Number of parts of `PART` tokens into which the vocabulary is divided for top-k; 0 if it is not divided. The
        rest of the vocabulary is shorter than a part.
        """
        self.rest = vocabulary - self.parts * PART
        self.in_part: Int[Tensor, S] = whole([*range(PART)])
        self.rest_part: Int[Tensor, One] = whole([self.parts])
        """Index of the part that begins with the rest."""
        self.widths = [1]
        for width in shape.widths[1:]:
            self.widths.append(min(width, self.widths[-1] * self.children))
        self.rows = sum(self.widths)
        depths = [depth for depth, width in enumerate(self.widths) for _ in range(width)]
        padding = max(0, -(-PLACES // self.children) - self.rows) + 1
        self.depths: Int[Tensor, R] = whole(depths + [0] * padding)
        self.levels: Int[Tensor, R] = whole([depth + 2 for depth in depths] + [0] * padding)
        """Level of each row's children, as in `DeviceState.nodes`."""
        above = [self.candidates(max(0, depth - 1)).start for depth in depths]
        self.offsets: Int[Tensor, R] = whole(above + [0] * padding)
        """For each row, index of the first candidate that has the same depth as the row."""
        self.places: Int[Tensor, P] = whole([*range(self.first), *(self.first - 1 + depth for depth in depths[1:])])
        """Text positions of the rows of all forward passes of a draft, relative to the first row's position."""
        self.nowhere: Int[Tensor, Q] = whole([-1] * padding)
        self.no_paths: Float[Tensor, Q] = torch.full((padding,), -torch.inf, dtype=torch.float64, device=device)
        self.every_depth: Float[Tensor, D] = torch.arange(self.deepest, dtype=torch.float64, device=device)
        rows = whole([row for width in self.widths for row in range(width)] + [0] * padding)
        self.lines: Int[Tensor, "3 C"] = torch.stack((rows * 0, rows * 0, rows)).repeat_interleave(self.children, 1)
        """Initial values of the candidates' lines: token; path log-probability, as the bits of a float64; index of the
        parent's row among the rows of the parent's level."""
        self.no_candidate: Int[Tensor, ""] = whole([self.lines.shape[1] - 1])[0]

    def candidates(self, depth: int) -> slice:
        """Index range of the candidates whose parents have this depth."""
        first = sum(self.widths[:depth]) * self.children
        return slice(first, first + self.widths[depth] * self.children)


def parts(vocabulary: int, best: int) -> int:
    """Number of whole parts of a vocabulary whose `best` most probable tokens are searched for in parts; 0 if top-k is
    faster for the undivided vocabulary.
    """
    return vocabulary // PART if vocabulary >= WHOLE > (best + 1) * PART else 0


@dataclass(frozen=True)
class _Rule:
    thresholds: Float[Tensor, "D"]
    """Least path log-probability of nodes with children, for each depth, starting with depth 0. The values rise with
    the depth, and are infinite at depths at which no node may have children.
    """
    breadths: Growth[Tensor] | None
    """The numbers of children (`narrow`, `middle`, `wide`), each as a row of biases on a node's candidates by rank: 0
    for ranks that become children, minus infinity for all other ranks. None if all nodes have the same number of
    children.
    """


@dataclass(frozen=True)
class _Grown:
    lines: Int[Tensor, "3 C"]
    """Lines of the candidates; see `Layout.lines`."""
    logprobs: Float[Tensor, "C"]
    own_logprobs: Float[Tensor, "C"] | None
    """The draft's own log-probabilities, if `logprobs` include sampling noise; else None."""
    paths: list[Float[Tensor, "W"]]
    """Path log-probabilities of the rows of each depth."""
    chosen: list[Int[Tensor, "W"]]
    """For each depth, the indices of the depth's rows among the candidates of the same depth; -1 for the root."""


def grow(side: Side, state: DeviceState, layout: Layout, slots: int, verifier: DeviceVerifier) -> None:
    """Drafts a tree after the text and writes the tree to the device state. The growth rule uses the probabilities that
    `verifier` estimates.
    """
    first = layout.first
    around = state.length + state.steps(-first, max(layout.rows, PLACES))
    places = around.index_select(0, layout.places).clamp(0, side.context - 1)
    rotation, tokens = side.rotation(places), state.text.index_select(0, places[:first])
    # Rows at positions before the start of the text write to the last cache slots, which no attention reads.
    row_slots = around.remainder(side.store.shape[3])
    bias = side.bias(state.steps(0, slots) <= places[:first, None])
    rule = _rule(side, state, layout)
    probabilities = verifier.probabilities(state.sampling, around[first : first + layout.deepest], side.vocabulary)
    lines = layout.lines.clone()
    logprobs = lines.new_empty(lines.shape[1], dtype=torch.float32)
    own_logprobs = torch.empty_like(logprobs) if probabilities else None
    grown = _Grown(lines, logprobs, own_logprobs, [state.certain[None]], [layout.nowhere[:1]])
    rows = slice(0, first)
    for depth, width in enumerate(layout.widths):
        logits = side.rotated_logits(tokens, rotation[rows], row_slots[rows], bias)[-width:]
        children = layout.candidates(depth)
        _add_children(probabilities(logits, depth) if probabilities else logits, layout, rule.breadths, grown, children)
        if grown.own_logprobs is not None:
            _add_own(logits, grown.lines[0, children], grown.own_logprobs[children])
        if depth + 1 < layout.deepest:
            order = _growing(grown.lines[1, children], state, layout, rule.thresholds[depth + 1], depth + 1)
            tokens, paths, parents = lines[:, children].index_select(1, order).unbind()
            grown.paths.append(paths.view(torch.float64))
            grown.chosen.append(order)
            rows = slice(rows.stop, rows.stop + layout.widths[depth + 1])
            bias = bias[-width:].index_select(0, parents).scatter_(1, row_slots[rows, None], 0.0)
    _pack(state, layout, rule, grown, around[first : first + PLACES])


def _rule(side: Side, state: DeviceState, layout: Layout) -> _Rule:
    growth = state.rule.logarithmic()
    growth = replace(growth, deepest=torch.minimum(growth.deepest, side.context - state.length))
    thresholds: Float[Tensor, D] = least_probability(growth, layout.every_depth, XP)
    if layout.even:
        return _Rule(thresholds, None)
    has = state.steps(0, layout.children) < state.rule.breadths[:, None]
    narrow, middle, wide = torch.where(has, state.certain, state.impossible).unbind()
    return _Rule(thresholds, replace(growth, narrow=narrow, middle=middle, wide=wide))


def best_tokens(
    logits: Float[Tensor, "W V"], layout: Layout, logprobs: Float[Tensor, "W B"], tokens: Int[Tensor, "W B"]
) -> None:
    """Writes each row's most probable tokens and their log-probabilities. Tokens of equal probability may be in any
    order; the softmax is in float32.

    The B best tokens of a divided vocabulary are in the B parts with the largest maxima, or in the rest. Otherwise one
    of them would be in another part, and each of the B parts would have a token that is at least as good.
    """
    logarithms = logits.log_softmax(-1, torch.float32)
    count = layout.children
    if count == 1:
        torch.max(logarithms, -1, keepdim=True, out=(logprobs, tokens))
    elif not layout.parts:
        torch.topk(logarithms, count, out=(logprobs, tokens))
    else:
        # The maxima are those of the logits, since log-probabilities have twice as many bytes in half precision.
        maxima = logits[:, : layout.parts * PART].unflatten(1, (layout.parts, PART)).amax(-1)
        chosen = maxima.topk(count, sorted=False).indices
        if layout.rest:
            chosen = torch.cat((chosen, layout.rest_part.expand(len(chosen), 1)), 1)
        searched = torch.add(layout.in_part, chosen[:, :, None], alpha=PART).flatten(1)
        searched = searched[:, : count * PART + layout.rest]
        order = torch.topk(logarithms.gather(1, searched), count, out=(logprobs, torch.empty_like(tokens))).indices
        torch.gather(searched, 1, order, out=tokens)


def _add_children(
    logits: Float[Tensor, "W V"], layout: Layout, breadths: Growth[Tensor] | None, grown: _Grown, children: slice
) -> None:
    shape = len(logits), layout.children
    logprobs = grown.logprobs[children].view(shape)
    best_tokens(logits, layout, logprobs, grown.lines[0, children].view(shape))
    paths = grown.paths[-1][:, None]
    if breadths:
        paths = paths + breadth(breadths, logprobs[:, :1], XP)
    torch.add(paths, logprobs, out=grown.lines[1, children].view(torch.float64).view(shape))


def _add_own(logits: Float[Tensor, "W V"], tokens: Int[Tensor, "C"], out: Float[Tensor, "C"]) -> None:
    logarithms = logits.log_softmax(-1, torch.float32)
    torch.gather(logarithms, 1, tokens.view(len(logits), -1), out=out.view(len(logits), -1))


def _growing(
    bits: Int[Tensor, "K"], state: DeviceState, layout: Layout, threshold: Float[Tensor, ""], depth: int
) -> Int[Tensor, "W"]:
    """Indices of the candidates that become rows of the next level, in ascending order: all nodes that get children
    and, to fill the level's fixed width, further candidates.
    """
    paths, width = bits.view(torch.float64), layout.widths[depth]
    if len(paths) == width:
        return state.steps(0, width)
    if layout.best:
        return paths.topk(width, sorted=False).indices.sort().values
    return (paths >= threshold).sort(stable=True, descending=True).indices[:width].sort().values


def _pack(state: DeviceState, layout: Layout, rule: _Rule, grown: _Grown, places: Int[Tensor, "N"]) -> None:
    """Writes the tree's nodes to the device state, in the tree's order, and the nodes' tokens to `state.text`, after
    the text's own tokens.
    """
    # If a node passes its threshold, so does its parent: the parent's path is at least as probable as the node's path,
    # and the parent's threshold is at most as high as the node's threshold.
    grows = torch.cat((*grown.paths, layout.no_paths)) >= rule.thresholds.index_select(0, layout.depths)
    paths = grown.lines[1].view(torch.float64).view(len(grows), -1)
    paths = torch.where(grows[:, None], paths, state.impossible).flatten()
    # In the unsorted order, a node comes after its ancestors, and it is at most as probable as its ancestors. The sort
    # is stable, so a node also comes after its ancestors in the sorted order: if a node is outside the budget, its
    # descendants are outside too.
    ranked = (paths if layout.best else paths > state.impossible).sort(stable=True, descending=True)
    exist = ranked.values[:PLACES] > state.impossible if layout.best else ranked.values[:PLACES]
    kept = exist & (state.steps(0, PLACES) < state.rule.n_max)
    nodes = torch.where(kept, ranked.indices[:PLACES], layout.no_candidate).sort().values
    tokens = grown.lines[0].index_select(0, nodes)
    parents = nodes.div(layout.children, rounding_mode="floor")
    rows = torch.cat((*grown.chosen, layout.nowhere)) + layout.offsets
    known_logprobs = [values for values in (grown.logprobs, grown.own_logprobs) if values is not None]
    lines = [
        tokens,
        torch.searchsorted(nodes, rows.index_select(0, parents), right=True),
        layout.levels.index_select(0, parents),
        torch.searchsorted(rows[1 : layout.rows], nodes),
        *(values.index_select(0, nodes).double().view(torch.int64) for values in known_logprobs),
    ]
    torch.stack(lines, out=state.nodes[: len(lines), 1:])
    state.text.index_copy_(0, places, tokens)
