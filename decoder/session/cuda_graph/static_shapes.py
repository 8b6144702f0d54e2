"""Tensor sizes of drafts and verifications under a growth rule. The parts of the rule that do not affect sizes are
values in device tensors.

Sizes are coarse, so that few CUDA graphs are captured. The fixed width of a level is enough for all nodes that get
children: these nodes have path probabilities of at least `stop`, and the path probabilities of a level sum to at most
1, so there are at most 1 / `stop` such nodes. This module knows neither tensors nor models.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from decoder.draft.tree_size.plan import DEPTHS, SIZES
from decoder.forward.layer_kinds import SLIDING, Windows
from decoder.tree_rules import TreeRule

MOST_ROWS = 1024
"""Rows of one draft."""
BUCKETS = (1, 8, 32, 64, 128, 264)
"""Rows of a verification; the last is enough for 256 drafted nodes and their root. Fewer than 8 would not be faster: a
GPU multiplies at least 8 rows at once, and most time goes into reading the weights.
"""
MOST_NODES = BUCKETS[-1]
"""With the root."""
DEEPEST = 32
WINDOW = 63
"""Largest window of the history rule: so many depth acceptances can be added in 64 bits without rounding."""
SLACK = 1e-4
"""The path probabilities of a level may sum to 1 + SLACK, by rounding in float32."""
FIRST_ROWS = 2
"""Rows of a draft model's first pass, which reads the text's last tokens; after rounds without a draft, a pass before
it reads the others.
"""
HEAD_ROWS = DEEPEST + 1
"""Rows of a head's first pass, which reads a round's accepted nodes and its bonus token with the target's states."""
SHORTEST = 256
"""Cache slots for the shortest texts."""
ROUNDED = 512
"""The cache slots of a text are a multiple of this number."""
GRAIN = 64
"""Rows and slots are rounded up to a multiple, since attention kernels read keys in blocks of at most 64."""
BEAM = 16
"""Nodes of a level that get children if costs decide the size of each round's tree."""
MOST_USUAL = SIZES[-1]
"""For trees of varying size, verifications are compiled in advance up to this number of rows."""

CHUNKED = "chunks of attention may end within a draft tree, but in a CUDA graph each node attends to all its ancestors"
SHORT = (
    f"attention windows of at most {DEEPEST} tokens may end within a draft tree, but in a CUDA graph each node attends "
    "to all its ancestors"
)


@dataclass(frozen=True)
class Shape:
    """Sizes of a draft's tensors; all rules of the same shape share one captured graph."""

    widest: int
    """Children of a node, at most."""
    widths: tuple[int, ...]
    """Nodes with children at each depth from 0, at most."""
    best: bool
    """Whether a tree keeps its most probable nodes within the budget, or the first in breadth-first order."""
    even: bool = False
    """Whether all nodes with children have as many."""
    sharp: bool = False
    """Whether greedy drafts sharpen the draft's probabilities, and so compute its own ones too."""

    @property
    def deepest(self) -> int:
        return len(self.widths)

    @cached_property
    def rows(self) -> int:
        """Rows of all passes after the first: one for each node below the root that may get children."""
        return sum(self.widths[1:])


Size = Shape | tuple[int, int]
"""Work in a round: the shape of a draft, or a verification's rows and levels below the root."""


def sizes_of_rounds(rule: TreeRule | None, *, drafts: bool = True) -> list[Size]:
    """Sizes of the work under this rule, those with most rows first, without verifications of more than `MOST_USUAL`
    rows; None stands for rounds without a draft. `drafts`: trees are drafted on the device.
    """
    if rule is None:
        return [(1, 0)]
    deepest = int(rule.growth.deepest)
    alone = (1,) if rule.budget.by_cost else ()  # costs may choose rounds without a draft
    verified = [(rows, levels(rows, deepest)) for rows in {*alone, *map(bucket, _verified(rule))}]
    return sorted([*verified, *(_shapes(rule) if drafts else ())], key=_rows, reverse=True)


def _rows(size: Size) -> int:
    return size.rows if isinstance(size, Shape) else size[0]


def shape(rule: TreeRule) -> Shape:
    """A knob change that keeps the shape needs no new capture."""
    growing = _growing(rule)
    # A beam's width decides which nodes get children, so it is not rounded up.
    limit = growing if rule.budget.beam else 1 << (growing - 1).bit_length()
    return _shape(rule, int(rule.growth.deepest), limit, best=rule.budget.best)


def beam(rule: TreeRule, depth: int) -> Shape:
    """A draft of `depth` levels that keeps its most probable nodes."""
    return _shape(rule, depth, BEAM, best=True)


def _shape(rule: TreeRule, depth: int, limit: int, *, best: bool) -> Shape:
    widest, widths = int(rule.growth.wide), [1]
    while len(widths) < depth:
        widths.append(min(widths[-1] * widest, limit))
    even, sharp = rule.growth.narrow == rule.growth.middle == rule.growth.wide, rule.growth.sharpness != 1
    return Shape(widest, tuple(widths), best, even=even, sharp=sharp)


def _growing(rule: TreeRule) -> int:
    """Nodes of one level that get children, at most."""
    growing, stop = rule.budget.growing, rule.growth.stop
    return growing if stop == 0 else min(growing, math.floor((1 + SLACK) / stop))


def most_nodes(rule: TreeRule) -> int:
    """Of the largest tree under this rule, with the root."""
    width, nodes = 1, 0
    for _ in range(int(rule.growth.deepest)):
        nodes += width * int(rule.growth.wide)
        width = min(width * int(rule.growth.wide), _growing(rule))
    return 1 + min(nodes, rule.budget.n_max)


def fits(rule: TreeRule | None) -> bool:
    """Whether rounds under this rule fit tensors of fixed size; None stands for rounds without a draft."""
    if rule is None:
        return True
    if rule.growth.deepest > DEEPEST or rule.history.window > WINDOW:
        return False
    return rule.budget.by_cost or (most_nodes(rule) <= MOST_NODES and shape(rule).rows <= MOST_ROWS)


def uncaptured(windows: Windows) -> str:
    """Why passes with these windows are not captured; empty if they can be."""
    if windows.sizes.keys() - {SLIDING}:
        return CHUNKED
    return SHORT if any(size <= DEEPEST for size in windows.sizes.values()) else ""


def bucket(nodes: int) -> int:
    """Rows of the verification of `nodes` nodes."""
    return next(size for size in BUCKETS if size >= nodes)


def levels(nodes: int, deepest: int) -> int:
    """Levels below the root that a tree of `nodes` nodes may have, at most `deepest`."""
    return min(deepest, nodes - 1)


def slots(length: int) -> int:
    """Cache slots that attention reads for at most `length` tokens: a power of two, since each further number would
    need as many graphs as the text has sizes of rounds. The price is attention to empty slots: about 0.6 us a layer per
    64 slots.
    """
    return max(SHORTEST, 1 << (length - 1).bit_length())


def padded(rows: int) -> int:
    """Rounded up to a multiple of `GRAIN`."""
    return -(-rows // GRAIN) * GRAIN


def room(longest: int) -> int:
    """Cache slots for a text of up to `longest` tokens, rounded up, so that a slightly longer text fits into the same
    memory and uses the same graphs.
    """
    return -(-(longest + DEEPEST + 1) // ROUNDED) * ROUNDED


def visible(length: int, rows: int, most: int) -> int:
    """Cache slots that attention reads for at most `length` tokens and `rows` rows after them, in a cache for a text of
    `most` tokens.
    """
    return min(slots(length), most) + padded(rows)


@dataclass(frozen=True)
class Passes:
    """Rows of the forward passes in rounds, ascending."""

    draft: tuple[int, ...]
    target: tuple[int, ...]


def passes(rules: Iterable[TreeRule | None]) -> Passes:
    """Under these rules; None stands for rounds without a draft."""
    fitting = [rule for rule in rules if rule is not None and fits(rule)]
    return of_sizes(fitting, (rows for rule in fitting for rows in _verified(rule)))


def of_sizes(rules: Iterable[TreeRule], verified: Iterable[int]) -> Passes:
    """The draft's passes under these rules, and the target's: of one node, and of the numbers in `verified`, rounded up
    to `BUCKETS`.
    """
    drafted = {rows for rule in rules for size in _shapes(rule) for rows in (FIRST_ROWS, *size.widths[1:])}
    return Passes(tuple(sorted(drafted)), tuple(sorted({1, *map(bucket, verified)})))


def _shapes(rule: TreeRule) -> Iterator[Shape]:
    if rule.budget.by_cost:
        deepest = int(rule.growth.deepest)
        yield from (beam(rule, depth) for depth in {*DEPTHS, deepest} if depth <= deepest)
    else:
        yield shape(rule)


def _verified(rule: TreeRule) -> Iterator[int]:
    """Rows that verifications may have under this rule."""
    if rule.budget.by_cost:
        yield from SIZES
    elif rule.growth.wide == 1 and rule.growth.middle:
        yield most_nodes(rule)
    else:
        yield from (rows for rows in BUCKETS if rows <= min(bucket(most_nodes(rule)), MOST_USUAL))
