"""The tree of one round, level by level: how deep its nodes lie, and how many were drafted and accepted at each depth.

What comes of many rounds is the business of `decoder.analysis.metrics`.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

from decoder.events import Round
from decoder.methods import root_is_drafted
from decoder.tree import depths, share_of_depth

Levels: TypeAlias = tuple[tuple[int, int], ...]
"""(drafted, accepted) nodes at depth 1, 2, ..."""


def depth_acceptance(parents: Sequence[int], accepted: Sequence[int], *, root_is_drafted: bool) -> float:
    """Accepted depth over the depth of the verified tree, in [0, 1]; 0 when nothing was drafted."""
    return share_of_depth(accepted, max(depths(parents)) + root_is_drafted)


def by_depth(event: Round) -> Levels:
    """(drafted, accepted) nodes of a round at depth 1, 2, ..., to the deepest that was drafted.

    Depth 1 is the first drafted level: the root's children, and the root itself where it is drafted.
    """
    first = not root_is_drafted(event.method)
    levels = depths(event.parents)
    drafted = [0] * (max(levels) + 1)
    accepted = [0] * len(drafted)
    for level in levels:
        drafted[level] += 1
    for node in event.accepted:
        accepted[levels[node]] += 1
    return tuple(zip(drafted, accepted, strict=True))[first:]


def drafted_nodes(event: Round) -> int:
    """Drafted nodes that this round verified."""
    return len(event.tokens) - (not root_is_drafted(event.method))


def level_by_level(totals: Levels, levels: Levels) -> Levels:
    """The sums of two, as deep as the deeper."""
    pairs = zip_longest(totals, levels, fillvalue=(0, 0))
    return tuple((drafted + more, accepted + kept) for (drafted, accepted), (more, kept) in pairs)
