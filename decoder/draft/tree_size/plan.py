"""Sizes of rounds that are planned before drafting, and their expected tokens. The sizes form a small grid, since each
size needs its own CUDA graphs. A round also shows what every smaller size would have accepted; a larger size is
estimated to accept slightly more.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEPTHS = (2, 5, 12, 32)
"""Numbers of draft levels. For constant acceptance probabilities up to 0.95, the best of these depths loses at most 2 %
against any other depth.
"""
SIZES = (8, 64)
"""Numbers of verified rows, with the root. A GPU verifies 2 to 8 rows in equal time."""
FIRST_HIT = 0.6
"""Prior probability that a token of level 1 is accepted."""
PRIOR_ROUNDS = 2.0
"""Weight of the prior probabilities, in observed rounds."""
UNSEEN = 0.1
"""Prior gain of the next larger size in `SIZES`: fraction of the paths ended by the smaller size that go on in it."""
DECAY = 0.97


@dataclass(frozen=True)
class TreePlan:
    depth: int
    nodes: int
    """Rows of the verification: the root and the most probable drafted nodes."""


class PathProbabilities:
    """Probabilities that the accepted path reaches each depth, for each number of rows in `SIZES`."""

    def __init__(self) -> None:
        self._tried = np.zeros((DEPTHS[-1] + 1, len(SIZES)))
        self._reached = np.zeros((DEPTHS[-1] + 1, len(SIZES)))

    def learn(self, plan: TreePlan, ranks: Sequence[int]) -> None:
        """`ranks`: ranks of the accepted nodes, as the function `ranks` returns them."""
        self.fade(DECAY)
        measured = bisect_right(SIZES, plan.nodes)
        self._tried[1 : plan.depth + 1, :measured] += 1
        for depth, rank in enumerate(ranks[: plan.depth], 1):
            self._reached[depth, bisect_right(SIZES, rank) : measured] += 1

    def fade(self, decay: float) -> None:
        self._tried *= decay
        self._reached *= decay

    def expected(self, deepest: int) -> list[list[float]]:
        """Expected number of accepted tokens: a list by depth, from 0 to `deepest`, of lists by index in `SIZES`."""
        counts = np.stack([self._tried, self._reached], -1).tolist()
        probabilities = [[1.0] * len(SIZES)]
        totals = [[0.0] * len(SIZES)]
        for depth in range(1, deepest + 1):
            above, by_size = probabilities[-1], list[float]()
            for index, (tried, reached) in enumerate(counts[depth]):
                before = probabilities[-2][index] if depth > 1 else 1.0
                guess = above[index] * (above[index] / before if depth > 1 else FIRST_HIT)
                fewer = by_size[-1] if by_size else 0.0
                guess = max(guess, fewer + UNSEEN * (above[index] - fewer))
                probability = (reached + PRIOR_ROUNDS * guess) / (tried + PRIOR_ROUNDS)
                by_size.append(min(above[index], max(fewer, probability, 1e-9)))
            probabilities.append(by_size)
            totals.append([total + probability for total, probability in zip(totals[-1], by_size, strict=True)])
        return totals


def ranks(path_logprobs: Sequence[float], accepted: Sequence[int]) -> list[int]:
    """Ranks, from 1, of the accepted nodes among all drafted nodes, the most probable first (ties: lowest number)."""
    order = sorted(range(1, len(path_logprobs)), key=lambda node: -path_logprobs[node])
    by_node = {node: rank for rank, node in enumerate(order, 1)}
    return [by_node[node] for node in accepted]
