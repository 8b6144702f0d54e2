"""Verification from the deepest nodes up. A stop is a node at which the accepted path may end; stops are tried in
order.

Each stop has an acceptance probability and a residual. The probabilities depend on the tree alone, since a stop is
tried only after all earlier stops were refused. So the probabilities, and the expected block efficiency, are known
before any random decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator


@dataclass(frozen=True)
class Stop:
    node: int
    probability: float
    """Acceptance probability, given that all earlier stops were refused."""
    removed: float
    """Factor on q in the distribution of the next token, which is (p - removed q)+, normalised."""


def first(stops: Sequence[Stop], generator: RandomGenerator) -> Stop:
    """The stop at which the path ends. Stops are tried in order, each with its probability; the root is the last."""
    *above_root, root = stops
    return next((stop for stop in above_root if stop.probability > 0 and generator.bernoulli(stop.probability)), root)


def reach(tree: DrawnTree, stops: Sequence[Stop]) -> list[float]:
    """Acceptance probability of each node, given the tree; 1 for the root."""
    probabilities, left = [0.0] * len(tree), 1.0
    for stop in stops:
        probabilities[stop.node] += stop.probability * left
        left *= 1 - stop.probability
    for node in range(len(tree) - 1, 0, -1):
        probabilities[tree.parents[node]] += probabilities[node]
    return probabilities
