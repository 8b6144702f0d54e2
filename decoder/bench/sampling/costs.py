"""Expected time of a round by the shape of its tree: the paper's equation 11, with pass times by rows.

The paper's pass times depend on the length of the text, these on the rows computed together. Drawing and verifying
outside of the models is left out: it does not affect the choice of a shape.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.tree_size.cost_model import Costs


class RoundCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a round's forward passes."""

    first_s: float
    """Draft's first pass, over the last token."""
    level_s: tuple[float, ...]
    """Each further draft pass, by its rows from 0."""
    verify_s: tuple[float, ...]
    """Target pass, by its rows from 0, the root among them."""

    def seconds(self, shape: DelayedTree) -> float:
        """Seconds of a round with a tree of this shape whose rollouts all differ."""
        if not shape.depth:
            return self.verify_s[1]
        levels = [1] * shape.l1 + [shape.k] * (shape.l2 - 1) if shape.l2 else [1] * (shape.l1 - 1)
        return self.first_s + sum(_at(self.level_s, rows) for rows in levels) + _at(self.verify_s, 1 + shape.most_nodes)


def round_costs(measured: Sequence[Costs]) -> RoundCosts:
    """Costs from repeated measurements of a pair: the least of each, since disturbances only add.

    A pass over fewer rows takes at most as long as one over more.
    """
    return RoundCosts(
        first_s=min(costs.catch_up.seconds(1) for costs in measured),
        level_s=_least([costs.draft.by_rows() for costs in measured]),
        verify_s=_least([[0.0, costs.plain_s(), *costs.verify.by_rows()[2:]] for costs in measured]),
    )


def _least(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    least = map(min, zip(*curves, strict=True))
    return tuple(accumulate(reversed([*least]), min))[::-1]


def _at(seconds: tuple[float, ...], rows: int) -> float:
    """Seconds of a pass over so many rows; beyond the measured ones, extrapolated from the last half."""
    if rows < len(seconds):
        return seconds[rows]
    last, half = len(seconds) - 1, len(seconds) // 2
    return seconds[last] + (rows - last) * max(0.0, seconds[last] - seconds[half]) / (last - half)
