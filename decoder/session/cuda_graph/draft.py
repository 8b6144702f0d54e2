"""Drafting of a whole tree as one function of device tensors, which computes all levels and packs the tree's nodes.

Growth rules are applied as masks: rows of nodes without children are computed and ignored. The tree equals the tree
that `decoder.draft.model_drafter` grows, except for the order of equally probable nodes. Probabilities are stored as
logarithms, with minus infinity for candidates outside the tree. Until the next draft, keys and values of row r (the
root is row 0) stay in cache slot `length` - 1 + r of a draft model, or in cache slot `length` - 2 + r of a head.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.forward.language_model import Fit, LanguageModel, fit
from decoder.forward.static_forward import StaticForward
from decoder.models.pair import Pair
from decoder.session.cuda_graph.device_state import XP, DeviceState
from decoder.session.cuda_graph.static_shapes import FIRST_ROWS, MOST_NODES, Shape
from decoder.tree_rules import Growth, breadth, least_probability
from decoder.verify.verifier import DeviceVerifier, Probabilities

PLACES = MOST_NODES - 1
WHOLE, PART = 8000, 128
"""Top-k on CUDA takes one kernel for a row shorter than WHOLE, else 22. Longer rows are therefore searched in two steps
of similar size: for the best parts of PART tokens, then for the best tokens in these parts.
"""


LevelPasses = Callable[[Int[Tensor, "N"], slice, Int[Tensor, "N"] | None, Float[Tensor, "N M"]], Float[Tensor, "W V"]]
"""The forward passes of one draft: (tokens, rows, parents, bias) -> logits of one level; tokens and logits have the
target's token ids. `rows` is the level's range among the rows of all passes; `parents` are indices of rows within the
level above. If `parents` is None, `tokens` are the text's last tokens, and the logits are those after the last of them.
"""


class Part(ABC):
    """The part of a `GraphSlot` that belongs to one model or head: a store of keys and values, and passes over the
    text. The store's last slots must be free: rows at positions before the text's start write to these slots.
    """

    first: ClassVar[int]
    """Number of rows of a draft's first pass, which reads the text's last tokens."""
    lag: ClassVar[int]
    """A token's position in the text minus the position of its row; a row's position is also its cache slot."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], vocabulary: int, context: int) -> None:
        """`vocabulary` is the number of the target's token ids, `context` the pair's context length."""
        self.store = store
        self.vocabulary = vocabulary
        self.context = context
        self.hidden: Float[Tensor, ""] = torch.full(
            (), torch.finfo(store.dtype).min, dtype=store.dtype, device=store.device
        )
        """Bias on scores of slots to which a row may not attend."""
        self._seen = torch.zeros_like(self.hidden)

    def bias(self, visible: Bool[Tensor, "N M"]) -> Float[Tensor, "N M"]:
        return torch.where(visible, self._seen, self.hidden)

    @abstractmethod
    def read(self, state: DeviceState, places: Int[Tensor, "N"], rows: slice, bias: Float[Tensor, "N M"]) -> None:
        """Reads text in rows at the consecutive positions `places`; `rows` is the same range as a slice."""

    @abstractmethod
    def unread(self, committed: int) -> int:
        """Number of tokens at the text's end that the draft has not read, after a round with a draft that committed
        `committed` tokens.
        """

    @abstractmethod
    def move(self, sources: Int[Tensor, "D"], places: Int[Tensor, "D"]) -> None:
        """Moves the rows of an accepted path between cache slots."""

    @abstractmethod
    def passes(self, places: Int[Tensor, "R"], slots: Int[Tensor, "R"]) -> LevelPasses:
        """The passes of a draft whose rows have these positions and write to these slots."""


class DraftPart(Part):
    first = FIRST_ROWS
    lag = 0

    def __init__(
        self,
        forward: StaticForward,
        store: Float[Tensor, "L 2 H S D"],
        vocabulary: int,
        context: int,
        conversion: Fit | None = None,
    ) -> None:
        """`conversion` is for a draft model that has more or fewer token ids than the target."""
        super().__init__(store, vocabulary, context)
        self.forward = forward
        self._conversion = conversion

    def logits(
        self, tokens: Int[Tensor, "N"], places: Int[Tensor, "N"], slots: Int[Tensor, "N"], bias: Float[Tensor, "N M"]
    ) -> Float[Tensor, "N V"]:
        return self.rotated_logits(tokens, self.rotation(places.clamp(0, self.context - 1)), slots, bias)

    def rotation(self, places: Int[Tensor, "N"]) -> Tensor:
        return self.forward.rotation(self.store, places)

    def rotated_logits(
        self, tokens: Int[Tensor, "N"], rotation: Tensor, slots: Int[Tensor, "N"], bias: Float[Tensor, "N M"]
    ) -> Float[Tensor, "N V"]:
        if self._conversion is None:
            return self.forward.computed(self.store, tokens, rotation, slots, bias)
        read = self._conversion.read_on_device(tokens)
        return self._conversion.logits(self.forward.computed(self.store, read, rotation, slots, bias))

    def read(self, state: DeviceState, places: Int[Tensor, "N"], rows: slice, bias: Float[Tensor, "N M"]) -> None:
        self.logits(state.text[rows], places, places, bias)

    def unread(self, committed: int) -> int:
        """Always 2: the bonus token, and the last accepted node, which is unread if it is a leaf."""
        del committed
        return 2

    def move(self, sources: Int[Tensor, "D"], places: Int[Tensor, "D"]) -> None:
        self.store.index_copy_(3, places, self.store.index_select(3, sources))

    def passes(self, places: Int[Tensor, "R"], slots: Int[Tensor, "R"]) -> LevelPasses:
        rotation = self.rotation(places)

        def logits(tokens: Tensor, rows: slice, parents: Tensor | None, bias: Tensor) -> Tensor:
            found = self.rotated_logits(tokens, rotation[rows], slots[rows], bias)
            return found[-1:] if parents is None else found

        return logits


def side_of(model: LanguageModel, form: StaticForward, store: Float[Tensor, "L 2 H S D"], pair: Pair) -> DraftPart:
    return DraftPart(form, store, pair.vocabulary, pair.context, fit(model, pair.vocabulary))


class DraftLayout:
    """Index tables for all drafts of one shape: constant tensors, made before capture. Each node that may get children
    is a row; rows are ordered by level. All rows have the same number of candidates, which are ordered by row. Padding
    rows follow, so that there are more candidates than a tree can have nodes.
    """

    def __init__(self, shape: Shape, vocabulary: int, device: torch.device, first: int = FIRST_ROWS) -> None:
        def whole(numbers: list[int]) -> Int[Tensor, "N"]:
            return torch.tensor(numbers, device=device)

        self.first, self.best, self.deepest, self.sharp = first, shape.best, shape.deepest, shape.sharp
        self.children = min(shape.widest, vocabulary)
        """Number of candidates of each row."""
        self.even = shape.even
        self.parts = parts(vocabulary, self.children)
        """Number of parts of `PART` tokens into which the vocabulary is divided for top-k, 0 if it is not divided; the
        remaining tokens are fewer than `PART`.
        """
        self.rest = vocabulary - self.parts * PART
        self.in_part: Int[Tensor, S] = whole([*range(PART)])
        self.rest_part: Int[Tensor, One] = whole([self.parts])
        """Index of the part that consists of the remaining tokens; it follows the whole parts."""
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
        """For each row, the index of the first candidate at the row's depth."""
        self.places: Int[Tensor, P] = whole([*range(self.first), *(self.first - 1 + depth for depth in depths[1:])])
        """Text positions of the rows of all passes, minus the position of the first row."""
        self.every_depth: Float[Tensor, D] = torch.arange(self.deepest, dtype=torch.float64, device=device)
        rows = whole([row for width in self.widths for row in range(width)] + [-1] * padding)
        rows[0] = -1
        certain = torch.zeros(len(rows), dtype=torch.float64, device=device)
        certain[self.rows :] = -torch.inf
        new_rows = torch.stack((rows * 0, certain.view(torch.int64), rows * 0, rows))
        new_lines = torch.stack((rows * 0, rows * 0, rows.clamp(0))).repeat_interleave(self.children, 1)
        self._new: Int[Tensor, X] = torch.cat((new_rows.flatten(), new_lines.flatten()))
        self.no_candidate: Int[Tensor, ""] = whole([new_lines.shape[1] - 1])[0]

    def new(self) -> tuple[Int[Tensor, "3 C"], Int[Tensor, "4 R"]]:
        """Initial values of `Grown.lines` and `Grown.rows`, copied by one kernel. Padding rows have path probability 0,
        so no candidate below them enters the tree. The initial rows of a level are its first candidates in order; in a
        level with a row for every candidate, this is the result.
        """
        new, of_rows = self._new.clone(), 4 * len(self.depths)
        return new[of_rows:].view(3, -1), new[:of_rows].view(4, -1)

    def candidates(self, depth: int) -> slice:
        """Range of the candidates whose parents have this depth."""
        level = self.level(depth)
        return slice(level.start * self.children, level.stop * self.children)

    def level(self, depth: int) -> slice:
        """Range of the rows of this depth."""
        first = sum(self.widths[:depth])
        return slice(first, first + self.widths[depth])


def parts(vocabulary: int, best: int) -> int:
    """Number of whole parts into which a vocabulary is divided to search for the `best` most probable tokens; 0 if
    top-k of the undivided row is faster.
    """
    return vocabulary // PART if vocabulary >= WHOLE > (best + 1) * PART else 0


@dataclass(frozen=True)
class DraftRule:
    thresholds: Float[Tensor, "D"]
    """Least path log-probability at which a node gets children, for each depth from 0; never falls with depth, and is
    infinite at depths where no node may have children.
    """
    breadths: Growth[Tensor] | None
    """`narrow`, `middle` and `wide` as biases on a node's candidates by rank: 0 for candidates that become children,
    minus infinity for the others. None if all nodes have the same number of children.
    """


@dataclass(frozen=True)
class Grown:
    lines: Int[Tensor, "3 C"]
    """Lines of each candidate: token; path log-probability (bits of a float64); parent's index in the level above."""
    logprobs: Float[Tensor, "C"]
    own_logprobs: Float[Tensor, "C"] | None
    """The draft's unmodified log-probabilities; None unless `logprobs` are sharpened or noisy."""
    rows: Int[Tensor, "4 R"]
    """For each row, the three lines of its candidate, then this candidate's index among the candidates of its depth
    (-1 for the root and for padding).
    """

    @property
    def paths(self) -> Float[Tensor, "R"]:
        return self.rows[1].view(torch.float64)


def best_tokens(
    logits: Float[Tensor, "W V"], layout: DraftLayout, logprobs: Float[Tensor, "W B"], tokens: Int[Tensor, "W B"]
) -> None:
    """Writes each row's B most probable tokens and their log-probabilities (softmax in float32); equally probable
    tokens are in any order. In a divided vocabulary, the B tokens are among the remaining tokens or in the B parts with
    the largest maxima, since each of these parts has a token at least as probable as any token of the other parts.
    """
    logarithms = logits.log_softmax(-1, torch.float32)
    count = layout.children
    if count == 1:
        torch.max(logarithms, -1, keepdim=True, out=(logprobs, tokens))
    elif not layout.parts:
        torch.topk(logarithms, count, out=(logprobs, tokens))
    else:
        # The maxima are taken over the logits: in half precision, they have half as many bytes as `logarithms`.
        maxima = logits[:, : layout.parts * PART].unflatten(1, (layout.parts, PART)).amax(-1)
        chosen = maxima.topk(count, sorted=False).indices
        if layout.rest:
            chosen = torch.cat((chosen, layout.rest_part.expand(len(chosen), 1)), 1)
        searched = torch.add(layout.in_part, chosen[:, :, None], alpha=PART).flatten(1)
        searched = searched[:, : count * PART + layout.rest]
        order = torch.topk(logarithms.gather(1, searched), count, out=(logprobs, torch.empty_like(tokens))).indices
        torch.gather(searched, 1, order, out=tokens)


def add_children(
    logits: Float[Tensor, "W V"],
    layout: DraftLayout,
    breadths: Growth[Tensor] | None,
    paths: Float[Tensor, "W"],
    lines: Int[Tensor, "3 K"],
    logprobs: Float[Tensor, "K"],
) -> None:
    """Writes a level's candidates: tokens and path log-probabilities to `lines` (see `Grown.lines`), log-probabilities
    after the parent to `logprobs`. `paths` are the path log-probabilities of the level's rows.
    """
    shape = len(logits), layout.children
    own = logprobs.view(shape)
    best_tokens(logits, layout, own, lines[0].view(shape))
    before = paths[:, None]
    if breadths:
        before = before + breadth(breadths, own[:, :1], XP)
    torch.add(before, own, out=lines[1].view(torch.float64).view(shape))


def keep_level(
    lines: Int[Tensor, "3 K"],
    rows: Int[Tensor, "4 W"],
    threshold: Float[Tensor, ""],
    bias: Float[Tensor, "U M"],
    slots: Int[Tensor, "W"],
    *,
    best: bool,
) -> Float[Tensor, "W M"]:
    """Chooses the candidates that become rows of the next level, by ascending index: all nodes that get children, and
    others up to the level's width. If `best`, the most probable candidates are kept, else the first ones with a path
    log-probability of at least `threshold`. Writes the lines of the new rows to `rows` (see `Grown.rows`) and returns
    their attention bias: a row attends to its own cache slot, and to all slots to which its parent's row attends.
    """
    paths, width = lines[1].view(torch.float64), rows.shape[1]
    if len(paths) > width:
        if best:
            kept = paths.topk(width, sorted=False).indices
        else:
            kept = (paths >= threshold).sort(stable=True, descending=True).indices[:width]
        torch.sort(kept, out=(rows[3], torch.empty_like(kept)))
    torch.index_select(lines, 1, rows[3], out=rows[:3])
    return bias.index_select(0, rows[2]).scatter_(1, slots[:, None], 0.0)


def pack_tree(state: DeviceState, layout: DraftLayout, rule: DraftRule, grown: Grown, places: Int[Tensor, "N"]) -> None:
    """Writes the nodes to the state in the tree's order, and their tokens to `places` of `state.text`."""
    # If a node passes its threshold, so does its parent: the parent's path is at least as probable as the node's path,
    # and the parent's threshold is at most as high as the node's threshold.
    grows = grown.paths >= rule.thresholds.index_select(0, layout.depths)
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
    rows = grown.rows[3] + layout.offsets
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


@dataclass(frozen=True)
class DraftOperators:
    """The functions of a draft that kernels may replace."""

    add_children: Callable[[Tensor, DraftLayout, Growth[Tensor] | None, Tensor, Tensor, Tensor], None] = add_children
    keep_level: Callable[..., Tensor] = keep_level
    pack_tree: Callable[[DeviceState, DraftLayout, DraftRule, Grown, Tensor], None] = pack_tree


def grow(
    part: Part,
    state: DeviceState,
    layout: DraftLayout,
    slots: int,
    verifier: DeviceVerifier,
    operators: DraftOperators,
) -> None:
    """Drafts a tree after the text, and writes it to the state. The growth rule uses probabilities from `verifier`."""
    first = layout.first
    around = state.length + state.steps(-first - part.lag, max(layout.rows, PLACES))
    after = around[first + part.lag :]
    places = around.index_select(0, layout.places).clamp(0, part.context - 1)
    # Rows at positions before the start of the text write to the last cache slots, which no attention reads.
    row_slots = around.remainder(part.store.shape[3])
    passes = part.passes(places, row_slots)
    tokens = state.text[part.lag :].index_select(0, places[:first])
    bias = part.bias(state.steps(0, slots) <= places[:first, None])
    rule = draft_rule(part, state, layout)
    probabilities = verifier.probabilities(state.sampling, after[: layout.deepest], part.vocabulary)
    if probabilities is None and layout.sharp:
        probabilities = _sharpened(state.rule.growth.sharpness)
    lines, rows_below = layout.new()
    logprobs = lines.new_empty(lines.shape[1], dtype=torch.float32)
    grown = Grown(lines, logprobs, torch.empty_like(logprobs) if probabilities else None, rows_below)
    rows = slice(0, first)
    logits = passes(tokens, rows, None, bias)
    for depth, width in enumerate(layout.widths):
        children = layout.candidates(depth)
        candidates, expected = lines[:, children], probabilities(logits, depth) if probabilities else logits
        operators.add_children(
            expected, layout, rule.breadths, grown.paths[layout.level(depth)], candidates, logprobs[children]
        )
        if grown.own_logprobs is not None:
            _add_own(logits, candidates[0], grown.own_logprobs[children])
        if depth + 1 < layout.deepest:
            below = grown.rows[:, layout.level(depth + 1)]
            rows = slice(rows.stop, rows.stop + below.shape[1])
            bias = operators.keep_level(
                candidates, below, rule.thresholds[depth + 1], bias[-width:], row_slots[rows], best=layout.best
            )
            logits = passes(below[0], rows, below[2], bias)
    state.drafted_from.copy_(logprobs[:1])
    operators.pack_tree(state, layout, rule, grown, after[:PLACES])


def draft_rule(part: Part, state: DeviceState, layout: DraftLayout) -> DraftRule:
    growth = state.rule.logarithmic()
    growth = replace(growth, deepest=torch.minimum(growth.deepest, part.context - state.length))
    thresholds: Float[Tensor, D] = least_probability(growth, layout.every_depth, XP)
    if layout.even:
        return DraftRule(thresholds, None)
    has = state.steps(0, layout.children) < state.rule.breadths[:, None]
    narrow, middle, wide = torch.where(has, state.certain, state.impossible).unbind()
    return DraftRule(thresholds, replace(growth, narrow=narrow, middle=middle, wide=wide))


def _sharpened(sharpness: Float[Tensor, ""]) -> Probabilities:
    return lambda logits, _: logits.float() * sharpness


def _add_own(logits: Float[Tensor, "W V"], tokens: Int[Tensor, "C"], out: Float[Tensor, "C"]) -> None:
    logarithms = logits.log_softmax(-1, torch.float32)
    torch.gather(logarithms, 1, tokens.view(len(logits), -1), out=out.view(len(logits), -1))
