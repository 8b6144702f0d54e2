"""Sizes of the tensors that a round in a CUDA graph needs, by growth rule (`decoder.tree_rules`). Sizes are rounded up
to a few values, so that few graphs are captured.

Each level of a draft has a fixed number of rows, enough for all nodes that get children: such a node has a path
probability of at least the rule's `stop`, and the path probabilities of a level sum to at most 1, so there are at most
1 / `stop` such nodes. This module only computes numbers; it does not know models.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from decoder.draft.tree_size.plan import DEPTHS, SIZES
from decoder.forward.layer_kinds import SLIDING, Windows
from decoder.tree_rules import TreeRule

MOST_ROWS = 1024
"""Largest number of rows of one draft."""
BUCKETS = (1, 8, 32, 64, 128, 264)
"""Numbers of rows of verifications; the largest is enough for 256 drafted nodes and their root. There is none between 1
and 8, since a GPU multiplies at least 8 rows at once, and reading the weights takes most of the time.
"""
MOST_NODES = BUCKETS[-1]
"""Largest number of nodes of a tree, including the root."""
DEEPEST = 32
WINDOW = 63
"""Largest window of the history rule: up to 63 depth acceptances can be added in 64 bits without rounding."""
SLACK = 1e-4
"""The path probabilities of a level may sum to 1 + SLACK, by rounding in float32."""
FIRST_ROWS = 2
"""Rows of a draft model's first pass, which reads the text's last tokens; after rounds without a draft, an extra pass
before the first pass reads earlier unread tokens.
"""
HEAD_ROWS = DEEPEST + 1
"""Rows of a head's first pass, which reads a round's accepted nodes and its bonus token with the target's states."""
SHORTEST = 256
"""Number of cache slots that attention reads for the shortest texts."""
ROUNDED = 512
"""The number of cache slots of a text is a multiple of this number."""
GRAIN = 64
"""Attention reads a multiple of this number of cache slots, since its kernels read keys in blocks of at most 64."""
BEAM = 16
"""Largest number of nodes of a level that get children if costs decide the size of each round's tree."""
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
    """Largest number of children of a node."""
    widths: tuple[int, ...]
    """Largest number of nodes with children at each depth, from depth 0."""
    best: bool
    """Whether trees keep the most probable nodes within the budget, or else the first nodes in breadth-first order."""
    even: bool = False
    """Whether all nodes with children have the same number of children."""
    sharp: bool = False
    """Whether greedy drafts sharpen the draft's probabilities, and so also compute the unsharpened ones."""

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
    """Sizes of the work under this rule, from most to fewest rows, without verifications of more than `MOST_USUAL`
    rows. A rule of None stands for rounds without a draft. `drafts`: whether trees are drafted on the device.
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
    """Shape of drafts under this rule; a knob change that keeps the shape needs no new capture."""
    growing = _growing(rule)
    # A beam's width decides which nodes get children, so it is not rounded up.
    limit = growing if rule.budget.beam else 1 << (growing - 1).bit_length()
    return _shape(rule, int(rule.growth.deepest), limit, best=rule.budget.best)


def beam(rule: TreeRule, depth: int) -> Shape:
    """Shape of drafts of `depth` levels that keep their most probable nodes."""
    return _shape(rule, depth, BEAM, best=True)


def _shape(rule: TreeRule, depth: int, limit: int, *, best: bool) -> Shape:
    widest, widths = int(rule.growth.wide), [1]
    while len(widths) < depth:
        widths.append(min(widths[-1] * widest, limit))
    even, sharp = rule.growth.narrow == rule.growth.middle == rule.growth.wide, rule.growth.sharpness != 1
    return Shape(widest, tuple(widths), best, even=even, sharp=sharp)


def _growing(rule: TreeRule) -> int:
    """Largest number of nodes of one level that get children."""
    growing, stop = rule.budget.growing, rule.growth.stop
    return growing if stop == 0 else min(growing, math.floor((1 + SLACK) / stop))


def most_nodes(rule: TreeRule) -> int:
    """Number of nodes of the largest tree under this rule, including the root."""
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
    """Why passes with these attention windows cannot be captured; empty if they can."""
    if windows.sizes.keys() - {SLIDING}:
        return CHUNKED
    return SHORT if any(size <= DEEPEST for size in windows.sizes.values()) else ""


def bucket(nodes: int) -> int:
    """Rows of the verification of `nodes` nodes."""
    return next(size for size in BUCKETS if size >= nodes)


def levels(nodes: int, deepest: int) -> int:
    """Largest number of levels below the root of a tree of `nodes` nodes; at most `deepest`."""
    return min(deepest, nodes - 1)


def slots(length: int) -> int:
    """Number of cache slots that attention reads for at most `length` tokens: a power of two, since each further number
    needs its own graph for every size of rounds. In return, attention also reads empty slots.
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
    """Number of cache slots that attention reads for at most `length` tokens and `rows` rows after them, in a cache for
    a text of `most` tokens.
    """
    return min(slots(length), most) + padded(rows)


@dataclass(frozen=True)
class Passes:
    """Numbers of rows of the forward passes in rounds, ascending."""

    draft: tuple[int, ...]
    target: tuple[int, ...]


def passes(rules: Iterable[TreeRule | None]) -> Passes:
    """Passes of rounds under these rules; a rule of None stands for rounds without a draft."""
    fitting = [rule for rule in rules if rule is not None and fits(rule)]
    return of_sizes(fitting, (rows for rule in fitting for rows in _verified(rule)))


def of_sizes(rules: Iterable[TreeRule], verified: Iterable[int]) -> Passes:
    """The draft's passes under these rules, and the target's passes of 1 row and of the numbers of rows in `verified`,
    rounded up to `BUCKETS`.
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
    """Numbers of rows that verifications may have under this rule."""
    if rule.budget.by_cost:
        yield from SIZES
    elif rule.growth.wide == 1 and rule.growth.middle:
        yield most_nodes(rule)
    else:
        yield from (rows for rows in BUCKETS if rows <= min(bucket(most_nodes(rule)), MOST_USUAL))
