"""Verification from the deepest nodes up: where a path may end, with what probability, and what follows there.

The probabilities are a function of the tree alone, since only a refusal leads to the next one: all are known before the
first coin, and with them the expected block efficiency.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator


@dataclass(frozen=True)
class Stop:
    """A node at which the accepted path may end."""

    node: int
    probability: float
    """That it ends here, if at none of the stops before."""
    removed: float
    """The token after it follows (p - removed q)+, normalised; p itself with 0."""


def first(stops: Sequence[Stop], generator: RandomGenerator) -> Stop:
    """The first stop whose coin says so; the last, the root, needs none."""
    *others, root = stops
    return next((stop for stop in others if stop.probability > 0 and generator.bernoulli(stop.probability)), root)


def reach(tree: DrawnTree, stops: Sequence[Stop]) -> list[float]:
    """The probability of each node to be accepted, over the coins alone; 1 for the root."""
    found, left = [0.0] * len(tree), 1.0
    for stop in stops:
        found[stop.node] += stop.probability * left
        left *= 1 - stop.probability
    for node in range(len(tree) - 1, 0, -1):
        found[tree.parents[node]] += found[node]
    return found
