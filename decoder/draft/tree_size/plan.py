"""Planned sizes of rounds, chosen before drafting, and the expected number of accepted tokens for each size.

One CUDA graph drafts a tree of a fixed depth, and another graph verifies a fixed number of the tree's most probable
nodes. The depth and the number of nodes come from a small grid, since each further size would need further graphs. Each
round also shows how many tokens every smaller size would have accepted. For a larger size, the estimate is slightly
above the estimate for the observed size. This module knows neither times nor models.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEPTHS = (2, 5, 12, 32)
"""Grid of draft depths, in levels. Around the best depth, the number of tokens per second hardly depends on the depth:
for constant acceptance probabilities up to 0.95, the best depth of this grid loses at most 2 %."""
SIZES = (8, 64)
"""Grid of verification sizes, in rows, the root included. A GPU verifies 2 to 8 rows in equal time."""
FIRST_HIT = 0.6
"""Prior probability that a token of level 1 is accepted."""
PRIOR_ROUNDS = 2.0
"""Weight of the prior, as a number of observed rounds."""
UNSEEN = 0.1
"""Prior effect of doubling the number of nodes: of the accepted paths that would end at a level, this fraction
continues to the next level.
"""
DECAY = 0.97
"""Decay factor of earlier observations, applied in each round."""


@dataclass(frozen=True)
class Plan:
    """Planned size of a round."""

    depth: int
    """Number of drafted levels."""
    nodes: int
    """Number of rows of the verification: the root and the most probable drafted nodes."""


class PathProbabilities:
    """Probability that the accepted path reaches each depth, for each number of verified rows in `SIZES`."""

    def __init__(self) -> None:
        self._tried = np.zeros((DEPTHS[-1] + 1, len(SIZES)))
        self._reached = np.zeros((DEPTHS[-1] + 1, len(SIZES)))

    def learn(self, plan: Plan, ranks: Sequence[int]) -> None:
        """Updates the probabilities with the ranks of a round's accepted nodes. A node's rank is its number, from 1,
        when all drafted nodes are sorted by path probability, highest first.
        """
        self.fade(DECAY)
        measured = bisect_right(SIZES, plan.nodes)
        self._tried[1 : plan.depth + 1, :measured] += 1
        for depth, rank in enumerate(ranks[: plan.depth], 1):
            self._reached[depth, bisect_right(SIZES, rank) : measured] += 1

    def fade(self, decay: float) -> None:
        """Multiplies the weight of earlier observations by `decay`."""
        self._tried *= decay
        self._reached *= decay

    def expected(self, deepest: int) -> list[list[float]]:
        """Table of the expected number of accepted tokens. Its first index is the draft depth, from 0 to `deepest`; its
        second index selects a size from `SIZES`.
        """
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
    """Ranks, from 1, of the accepted nodes when all drafted nodes are sorted by path probability, highest first. Nodes
    of equal probability are sorted by node number.
    """
    order = sorted(range(1, len(path_logprobs)), key=lambda node: -path_logprobs[node])
    by_node = {node: rank for rank, node in enumerate(order, 1)}
    return [by_node[node] for node in accepted]
