"""traversal: a whole tree is judged from its leaves up, in post-order; on one path this is block verification.

Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding". It judges slots, one a draw: where rollouts
share a node, the first draw of its token owns the subtree. A later one changes what is left for its siblings and gets
nothing itself: a token that was refused has no residual, unless it could not be refused. What a node is still worth
after refusals is (p - removed q)+ / S, so scalars are its whole state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.rows import Row, Rows, positive, ratio, share


@dataclass(frozen=True)
class Judged:
    """A node of which all draws were refused."""

    slots: Sequence[float]
    """The probability that is handed to each draw, in draw order."""
    probability: float
    """What is left for the node itself."""
    removed: float
    """See `Stop`."""


def stops(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
    """Stops in post-order, the root last, without subtrees of probability 0. Shapes (N, V)."""

    def judge(node: int, probability: float) -> Judged:
        return judged(target_probs[node], draft_probs[node], tree.drawn(node), probability)

    return list(post_order(tree, judge))


def judged(target_probs: Row, draft_probs: Row, drawn: Sequence[int], probability: float) -> Judged:
    """A node that may stop with a probability above 0 before its draws are refused one by one; shapes (V,)."""
    slots, removed, total = [], 0.0, 1.0
    for token in drawn:
        left = max(0.0, target_probs[token] - removed * draft_probs[token])
        alive = probability > 0 and total > 0
        slots.append(ratio(probability * left / total, draft_probs[token]) if alive else 0.0)
        if alive:
            removed += total / probability
            rest = float(positive(target_probs - removed * draft_probs).sum())
            probability, total = share(probability * rest / total, 1 - probability), rest
    return Judged(slots, probability, removed)


def post_order(tree: DrawnTree, judge: Callable[[int, float], Judged]) -> Iterator[Stop]:
    """The stops of a tree whose nodes are judged by their number and the probability that they are handed."""

    def visit(node: int, probability: float) -> Iterator[Stop]:
        found = judge(node, probability)
        for place, child, owns in tree.slots(node):
            if owns and found.slots[place] > 0:
                yield from visit(child, found.slots[place])
        yield Stop(node, found.probability if node else 1.0, found.removed)

    return visit(0, 1.0)
