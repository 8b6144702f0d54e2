"""Which forward passes rounds are made of, by their rows: what compiled forms of both models are made and tried for.

Pure; knows neither tensors nor models.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from decoder.draft.tree_size.plan import DEPTHS, SIZES
from decoder.session.cuda_graph.static_shapes import BUCKETS, Shape, beam, bucket, fits, most_nodes, shape
from decoder.tree_rules import TreeRule

MOST_USUAL = SIZES[-1]
"""Rows of a verification: where rules leave the size of a tree open, larger ones are seldom."""


@dataclass(frozen=True)
class Passes:
    """Rows of the passes of each model, from the fewest to the most."""

    draft: tuple[int, ...]
    target: tuple[int, ...]


def passes(rules: Iterable[TreeRule[float] | None]) -> Passes:
    """The passes of rounds that run on the device under these rules; None drafts nothing."""
    fitting = [each for each in rules if each is not None and fits(each)]
    return of_sizes(fitting, (rows for each in fitting for rows in _verified(each)))


def of_sizes(rules: Iterable[TreeRule[float]], verified: Iterable[int]) -> Passes:
    """The passes of plain rounds, of drafts under these rules, and of verifications of trees of so many rows."""
    drafted = {rows for each in rules for size in _shapes(each) for rows in (size.first, *size.widths[1:])}
    return Passes(tuple(sorted(drafted)), tuple(sorted({1, *map(bucket, verified)})))


def _shapes(rule: TreeRule[float]) -> Iterator[Shape]:
    if rule.by_cost:
        deepest = int(rule.deepest)
        yield from (beam(rule, depth) for depth in {*DEPTHS, deepest} if depth <= deepest)
    else:
        yield shape(rule)


def _verified(rule: TreeRule[float]) -> Iterator[int]:
    """Rows of the trees that a rule grows."""
    if rule.by_cost:
        yield from SIZES
    elif rule.wide == 1:
        yield most_nodes(rule)
    else:
        yield from (rows for rows in BUCKETS if rows <= min(bucket(most_nodes(rule)), MOST_USUAL))
