"""Sizes of rounds that are planned before anything is drafted, and how far the target's path lies within them.

A CUDA graph drafts a whole tree of so many levels, and another verifies so many of its most probable nodes: the sizes
are those of a small grid. What smaller sizes would have brought is known from each round; of larger ones a little more
is expected than was seen. Knows neither times nor models.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Levels of a draft."""
SIZES = (2, 4, 8, 16, 32, 64)
"""Rows of a verification, the root among them."""
FIRST_HIT = 0.6
"""Prior probability of the most probable token."""
PRIOR_ROUNDS = 2.0
"""Rounds that the prior weighs as much as."""
UNSEEN = 0.1
"""Prior: share of the missing probability that twice as many nodes gain."""
KEPT = 0.97
"""Decay factor of earlier observations, applied by each round."""


@dataclass(frozen=True)
class Plan:
    """The size of a round."""

    depth: int
    nodes: int
    """Rows of its verification, the root among them."""


class PathProbabilities:
    """Probability that the target's path reaches a depth within the so many most probable nodes."""

    def __init__(self) -> None:
        self._tried = np.zeros((DEPTHS[-1] + 1, len(SIZES)))
        self._reached = np.zeros((DEPTHS[-1] + 1, len(SIZES)))

    def learn(self, plan: Plan, ranks: Sequence[int]) -> None:
        """Takes note of a round: the ranks, from 1, of the accepted nodes among all nodes of its tree."""
        self.fade(KEPT)
        known = bisect_right(SIZES, plan.nodes)
        self._tried[1 : plan.depth + 1, :known] += 1
        for depth, rank in enumerate(ranks[: plan.depth], 1):
            self._reached[depth, bisect_right(SIZES, rank) : known] += 1

    def fade(self, kept: float) -> None:
        """Multiplies earlier observations by this factor."""
        self._tried *= kept
        self._reached *= kept

    def expected(self, deepest: int) -> list[list[float]]:
        """Accepted tokens by depth, from 0 on, and size."""
        seen = np.stack([self._tried, self._reached], -1).tolist()
        probabilities = [[1.0] * len(SIZES)]
        totals = [[0.0] * len(SIZES)]
        for depth in range(1, deepest + 1):
            above, found = probabilities[-1], list[float]()
            for index, (tried, reached) in enumerate(seen[depth]):
                before = probabilities[-2][index] if depth > 1 else 1.0
                guess = above[index] * (above[index] / before if depth > 1 else FIRST_HIT)
                fewer = found[-1] if found else 0.0
                guess = max(guess, fewer + UNSEEN * (above[index] - fewer))
                probability = (reached + PRIOR_ROUNDS * guess) / (tried + PRIOR_ROUNDS)
                found.append(min(above[index], max(fewer, probability, 1e-9)))
            probabilities.append(found)
            totals.append([total + probability for total, probability in zip(totals[-1], found, strict=True)])
        return totals


def ranks(path_logprobs: Sequence[float], accepted: Sequence[int]) -> list[int]:
    """The places of the accepted nodes among all drafted ones by path probability, from 1; ties by their order."""
    order = sorted(range(1, len(path_logprobs)), key=lambda node: -path_logprobs[node])
    places = {node: place for place, node in enumerate(order, 1)}
    return [places[node] for node in accepted]
