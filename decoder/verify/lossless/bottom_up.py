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
    """A node at which the accepted path may end; it is accepted or refused as the path's end."""

    node: int
    probability: float
    """Probability that the path ends at this node, given that all earlier stops were refused."""
    removed: float
    """Factor on q in the next token's distribution, (p - removed q)+ normalised; with factor 0 the distribution
    is p.
    """


def first(stops: Sequence[Stop], generator: RandomGenerator) -> Stop:
    """The stop at which the path ends. Stops are tried in order, and each is accepted with its probability. If no other
    stop is accepted, the path ends at the last stop, the root.
    """
    *above_root, root = stops
    return next((stop for stop in above_root if stop.probability > 0 and generator.bernoulli(stop.probability)), root)


def reach(tree: DrawnTree, stops: Sequence[Stop]) -> list[float]:
    """Probability that the verifier accepts each node, given the tree; 1 for the root."""
    probabilities, left = [0.0] * len(tree), 1.0
    for stop in stops:
        probabilities[stop.node] += stop.probability * left
        left *= 1 - stop.probability
    for node in range(len(tree) - 1, 0, -1):
        probabilities[tree.parents[node]] += probabilities[node]
    return probabilities
