"""Verification from the root down: a solver chooses the token after a node, and the walk goes on while it was drawn.

Any solver whose token follows the target's row, over draws that are independent given the draft's row, makes the walk
lossless on i.i.d. rollouts and delayed trees (the paper, section 3.2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row, Rows

Accepted: TypeAlias = tuple[list[int], int]
"""The accepted nodes below the root, in path order, and the token after them."""
Solve: TypeAlias = Callable[[Row, Row, Sequence[int], RandomGenerator], int]
"""From the target's row, the draft's, the drawn tokens and coins, the token after a node: over i.i.d. draws it follows
the target's row.
"""


@dataclass(frozen=True)
class Solver:
    """Closed forms of one way to choose the token after a node, mostly among the k tokens that were drawn there.

    Rows have shape (V,); the target's come first, then the draft's, then the drawn tokens or their number k >= 1.
    """

    acceptance_rate: Callable[[Row, Row, int], float]
    """The probability that it is a drawn one, over k i.i.d. draws (the paper, appendix C)."""
    branching: Callable[[Row, Row, Sequence[int]], Mapping[int, float]]
    """The probability of each distinct drawn token, given the draws (the paper, appendix D)."""


def descend(tree: DrawnTree, choose: Callable[[int], int]) -> Accepted:
    """Walks from the root to where the token chosen after a node was not drafted."""
    node, path = 0, []
    while (child := tree.child(node, token := choose(node))) is not None:
        path.append(child)
        node = child
    return path, token


def reach(solver: Solver, tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[float]:
    """The probability of each node to be accepted, over the coins alone; 1 for the root. Shapes (N, V)."""
    found = [1.0] + [0.0] * (len(tree) - 1)
    for node, drawn in enumerate(tree.children):
        if drawn:
            probabilities = solver.branching(target_probs[node], draft_probs[node], tree.drawn(node))
            for child in drawn:
                found[child] = found[node] * probabilities[tree.tokens[child]]
    return found
