"""Verification from the deepest nodes up. A stop is a node at which the accepted path may end; stops are tried in
order.

Each stop has an acceptance probability and a residual. The probabilities depend on the tree alone, since a stop is
tried only after all earlier stops were refused. So the probabilities, and the expected block efficiency, are known
before any random decision.

traversal (Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding") verifies a whole tree from its
leaves up, in post-order; on one path it is block verification. The sampled tokens are tried one by one. If a token was
sampled several times after a node, its first sample owns the subtree. A later sample of the same token changes the
residual of its siblings but gets probability 0 itself, since the residual of a refused token is 0. After refusals, a
node's residual is (p - r q)+ / S: two scalars determine it, the factor r (`removed` in code) and the sum S.

block (Sun et al. 2024, "Block verification accelerates speculative decoding") verifies one path as a whole. On average,
it accepts at least as many tokens as verification token by token. Nodes are accepted with the probability h of that
paper. (If nodes were accepted with the weights w of the paper's section 3.1, the text would be biased.) With h, the
probability that at least i tokens of the path are accepted is w_i. No lossless rule for one path has a higher
probability.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row, Rows, positive, ratio, share


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


@dataclass(frozen=True)
class NodeSplit:
    """How a node's probability is divided between the tokens sampled after it and a stop."""

    slots: Sequence[float]
    """Probability that is passed to each sampled token, in the order of sampling."""
    probability: float
    """Probability of a stop after all sampled tokens are refused."""
    removed: float
    """See `Stop`."""


def traversal_stops(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
    """Stops in post-order, the root last, without subtrees of probability 0."""

    def judge(node: int, probability: float) -> NodeSplit:
        return split_node(target_probs[node], draft_probs[node], tree.drawn(node), probability)

    return list(post_order(tree, judge))


def split_node(target_probs: Row, draft_probs: Row, drawn: Sequence[int], probability: float) -> NodeSplit:
    """Divides a node's `probability`, which must be above 0, between its sampled tokens and a stop."""
    slots, removed, total = [], 0.0, 1.0
    for token in drawn:
        left = max(0.0, target_probs[token] - removed * draft_probs[token])
        alive = probability > 0 and total > 0
        slots.append(ratio(probability * left / total, draft_probs[token]) if alive else 0.0)
        if alive:
            removed += total / probability
            mass_left = float(positive(target_probs - removed * draft_probs).sum())
            probability, total = share(probability * mass_left / total, 1 - probability), mass_left
    return NodeSplit(slots, probability, removed)


def post_order(tree: DrawnTree, judge: Callable[[int, float], NodeSplit]) -> Iterator[Stop]:
    """Stops in post-order; `judge` is (node, probability) -> division."""

    def visit(node: int, probability: float) -> Iterator[Stop]:
        division = judge(node, probability)
        for place, child, owns in tree.slots(node):
            if owns and division.slots[place] > 0:
                yield from visit(child, division.slots[place])
        yield Stop(node, division.probability if node else 1.0, division.removed)

    return visit(0, 1.0)


def block_stops(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
    """Stops in the order of trial, the deepest node first. Raises ValueError if the tree is not a chain."""
    chain, weight = tree.chain(), 1.0
    stops = [Stop(chain[0], 1.0, 1.0 if len(chain) > 1 else 0.0)]
    for above, node in pairwise(chain):
        token = tree.tokens[node]
        weight = ratio(weight * target_probs[above, token], draft_probs[above, token])
        stops.append(Stop(node, weight, 0.0))
        if node != chain[-1] and weight > 0:
            left = float(positive(weight * target_probs[node] - draft_probs[node]).sum())
            stops[-1] = Stop(node, share(left, 1 - weight), 1 / weight)
    return stops[::-1]
