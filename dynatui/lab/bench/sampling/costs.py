"""Expected time of a round with a given tree shape: the paper's equation 11.

Here the time of a forward pass depends on its number of rows (computed tokens); in the paper, this time depends on the
text length. Sampling and verification outside of the models are left out, since they do not affect the choice of a
shape.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs


class RoundCosts(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds."""

    first_s: float
    """Of the first draft pass, over the last committed token."""
    level_s: tuple[float, ...]
    """Of a later draft pass, indexed by the pass's number of rows."""
    verify_s: tuple[float, ...]
    """Of the target pass, indexed by its number of rows, which include the root."""

    def seconds(self, shape: DelayedTree) -> float:
        """Of a round with a tree of this shape, assuming that no two rollouts share a node."""
        if not shape.depth:
            return self.verify_s[1]
        levels = [1] * shape.l1 + [shape.k] * (shape.l2 - 1) if shape.l2 else [1] * (shape.l1 - 1)
        return self.first_s + sum(_at(self.level_s, rows) for rows in levels) + _at(self.verify_s, 1 + shape.most_nodes)


def round_costs(measured: Sequence[Costs]) -> RoundCosts:
    """The lowest of repeated measurements, since disturbances only add time; non-decreasing in the number of rows."""
    return RoundCosts(
        first_s=min(costs.catch_up.seconds(1) for costs in measured),
        level_s=_least([costs.draft.by_rows() for costs in measured]),
        verify_s=_least([[0.0, costs.plain_s(), *costs.verify.by_rows()[2:]] for costs in measured]),
    )


def _least(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    least = map(min, zip(*curves, strict=True))
    return tuple(accumulate(reversed([*least]), min))[::-1]


def _at(seconds: tuple[float, ...], rows: int) -> float:
    """Beyond the measured range, the time is extrapolated linearly from the upper half of the range."""
    if rows < len(seconds):
        return seconds[rows]
    last, half = len(seconds) - 1, len(seconds) // 2
    return seconds[last] + (rows - last) * max(0.0, seconds[last] - seconds[half]) / (last - half)
