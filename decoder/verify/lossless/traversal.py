"""traversal: verification of a whole tree from its leaves up, in post-order; on one path this is block verification.

From Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding". The sampled tokens are tried one by one.
If a token was sampled several times after a node, its first sample owns the subtree. A later sample of the same token
changes the residual of its siblings but gets probability 0 itself, since the residual of a refused token is 0. After
refusals, a node's residual is (p - r q)+ / S: two scalars determine it, the factor r (`removed` in code) and the sum S.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.rows import Row, Rows, positive, ratio, share


@dataclass(frozen=True)
class NodeSplit:
    """How a node's probability is divided between the tokens sampled after it and a stop."""

    slots: Sequence[float]
    """Probability that is passed to each sampled token, in the order of sampling."""
    probability: float
    """Probability of a stop after all sampled tokens are refused."""
    removed: float
    """See `Stop`."""


def stops(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
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
