"""Tensor sizes of a draft under a growth rule; everything else in the rule is numbers that a device reads.

Pure; knows neither tensors nor models. A level's width is fixed and still exact: the probabilities of a level's paths
sum to 1 at most, so no more than 1 / stop of them reach `stop` and grow.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from decoder.draft.tree_size.plan import DEPTHS, SIZES
from decoder.tree_rules import TreeRule

MOST_ROWS = 1024
"""Rows that one draft may forward."""
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 264)
"""Rows of a verification; the last holds 256 nodes and their root."""
MOST_NODES = BUCKETS[-1]
"""Most nodes of a tree, its root included."""
DEEPEST = 32
WINDOW = 63
"""Longest window of history: as many shares as add up without rounding in 64 bits."""
SLACK = 1e-4
"""Path probabilities come from float32 numbers: those of one level may sum to a little more than 1."""
FIRST_ROWS = (2, 16, 64, 256)
"""Rows of the draft's first pass: the last tokens, of which it may lack one or two, or more after plain rounds."""
BEAM = 16
"""Nodes of one level that grow where each round decides how many nodes pay."""
MOST_USUAL = SIZES[-1]
"""Rows of a verification: where rules leave the size of a tree open, larger ones are seldom."""


@dataclass(frozen=True)
class Shape:
    """How large a draft's tensors are; all rules of one shape share one captured graph."""

    widest: int
    """Children of a node."""
    widths: tuple[int, ...]
    """Nodes of depth 0, 1, 2, ... that may grow."""
    best: bool
    """Whether the most probable nodes stay, and not the first."""
    first: int = FIRST_ROWS[0]
    even: bool = False
    """Whether all nodes that grow have as many children."""

    @property
    def deepest(self) -> int:
        """Depth of the deepest nodes."""
        return len(self.widths)

    @cached_property
    def rows(self) -> int:
        """Drafted nodes that are forwarded."""
        return sum(self.widths[1:])


def shape(rule: TreeRule) -> Shape:
    """The shape of a rule's drafts; knobs that leave it alone may be turned at no cost."""
    return _shape(rule, int(rule.growth.deepest), 1 << (_growing(rule) - 1).bit_length(), best=rule.budget.best)


def beam(rule: TreeRule, depth: int) -> Shape:
    """The shape of a draft of so many levels, whose most probable nodes stay."""
    return _shape(rule, depth, BEAM, best=True)


def _shape(rule: TreeRule, depth: int, most: int, *, best: bool) -> Shape:
    widest, widths = int(rule.growth.wide), [1]
    while len(widths) < depth:
        widths.append(min(widths[-1] * widest, most))
    return Shape(widest, tuple(widths), best, even=rule.growth.narrow == rule.growth.wide)


def _growing(rule: TreeRule) -> int:
    """Most nodes of one level that grow."""
    n_max, stop = rule.budget.n_max, rule.growth.stop
    return n_max if stop == 0 else min(n_max, math.floor((1 + SLACK) / stop))


def most_nodes(rule: TreeRule) -> int:
    """The largest tree of a rule, its root included."""
    width, nodes = 1, 0
    for _ in range(int(rule.growth.deepest)):
        nodes += width * int(rule.growth.wide)
        width = min(width * int(rule.growth.wide), _growing(rule))
    return 1 + min(nodes, rule.budget.n_max)


def fits(rule: TreeRule | None) -> bool:
    """Whether rounds of this rule, or without a draft, are best drafted in tensors of fixed size."""
    if rule is None:
        return True
    if rule.growth.deepest > DEEPEST or rule.history.window > WINDOW:
        return False
    return rule.budget.by_cost or (most_nodes(rule) <= MOST_NODES and shape(rule).rows <= MOST_ROWS)


def first_rows(lacking: int) -> int:
    """Rows of the first pass of a draft that lacks so many of the last tokens."""
    return next(size for size in FIRST_ROWS if size >= lacking)


def bucket(nodes: int) -> int:
    """Rows of the verification of so many nodes."""
    return next(size for size in BUCKETS if size >= nodes)


def levels(nodes: int) -> int:
    """Levels that the verification of so many rows allows for: as many as any tree of that size may have."""
    return min(DEEPEST, nodes - 1)


def slots(rows: int) -> int:
    """Rows of keys and values that attention reads where so many are in use: 256, 384, 512, 768, 1024, ..."""
    size = 256
    while size < rows:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


@dataclass(frozen=True)
class Passes:
    """Rows of the forward passes that rounds are made of, by model, from the fewest to the most."""

    draft: tuple[int, ...]
    target: tuple[int, ...]


def passes(rules: Iterable[TreeRule | None]) -> Passes:
    """The passes of rounds that run on the device under these rules; None drafts nothing."""
    fitting = [each for each in rules if each is not None and fits(each)]
    return of_sizes(fitting, (rows for each in fitting for rows in _verified(each)))


def of_sizes(rules: Iterable[TreeRule], verified: Iterable[int]) -> Passes:
    """The passes of plain rounds, of drafts under these rules, and of verifications of trees of so many rows."""
    drafted = {rows for each in rules for size in _shapes(each) for rows in (size.first, *size.widths[1:])}
    return Passes(tuple(sorted(drafted)), tuple(sorted({1, *map(bucket, verified)})))


def _shapes(rule: TreeRule) -> Iterator[Shape]:
    if rule.budget.by_cost:
        deepest = int(rule.growth.deepest)
        yield from (beam(rule, depth) for depth in {*DEPTHS, deepest} if depth <= deepest)
    else:
        yield shape(rule)


def _verified(rule: TreeRule) -> Iterator[int]:
    """Rows of the trees that a rule grows."""
    if rule.budget.by_cost:
        yield from SIZES
    elif rule.growth.wide == 1:
        yield most_nodes(rule)
    else:
        yield from (rows for rows in BUCKETS if rows <= min(bucket(most_nodes(rule)), MOST_USUAL))
