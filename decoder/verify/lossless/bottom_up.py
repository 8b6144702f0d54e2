"""Verification from the deepest nodes up: a list of stops, each with its probability and residual.

The probabilities depend on the tree alone, since a stop is reached only after all earlier ones were refused. So they,
and the expected block efficiency, are known before any random number is drawn.
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
    """Probability that the path ends here, given that it ended at none of the stops before."""
    removed: float
    """Weight of q in the distribution of the next token, (p - removed q)+ normalised; 0 leaves p."""


def first(stops: Sequence[Stop], generator: RandomGenerator) -> Stop:
    """The stop at which the path ends: the first to be accepted at random, or else the last, the root."""
    *others, root = stops
    return next((stop for stop in others if stop.probability > 0 and generator.bernoulli(stop.probability)), root)


def reach(tree: DrawnTree, stops: Sequence[Stop]) -> list[float]:
    """Each node's probability of being accepted, given the tree, over the verifier's random numbers; 1 for the root."""
    probabilities, left = [0.0] * len(tree), 1.0
    for stop in stops:
        probabilities[stop.node] += stop.probability * left
        left *= 1 - stop.probability
    for node in range(len(tree) - 1, 0, -1):
        probabilities[tree.parents[node]] += probabilities[node]
    return probabilities
