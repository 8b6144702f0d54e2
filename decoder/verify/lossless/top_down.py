"""Verification from the root down: a solver chooses each next token, and the walk continues as long as the chosen token
was drafted.

On i.i.d. rollouts and delayed trees, the walk is lossless with any solver that meets one condition: if the samples are
drawn independently from the draft's row, the chosen token has the target's distribution (Thomas et al. 2026, section
3.2).
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
"""(target row, draft row, sampled tokens, generator) -> the token after a node, with the target's distribution if the
sampled tokens are i.i.d. from the draft's row.
"""


@dataclass(frozen=True)
class Solver:
    """Closed forms for a rule that chooses the token after a node with k >= 1 sampled tokens. Their arguments are the
    target's row, the draft's row, and the sampled tokens or the number of them.
    """

    acceptance_rate: Callable[[Row, Row, int], float]
    """Probability that the chosen token is one of k i.i.d. sampled tokens (Thomas et al. 2026, appendix C)."""
    branching: Callable[[Row, Row, Sequence[int]], Mapping[int, float]]
    """Probability of each distinct sampled token to be chosen, given all samples (Thomas et al. 2026, appendix D)."""


def descend(tree: DrawnTree, choose: Callable[[int], int]) -> Accepted:
    """Walks from the root until the token that is chosen after a node is not among the node's children."""
    node, path = 0, []
    while (child := tree.child(node, token := choose(node))) is not None:
        path.append(child)
        node = child
    return path, token


def reach(solver: Solver, tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[float]:
    """Acceptance probability of each node, given the tree; 1 for the root."""
    accepted = [1.0] + [0.0] * (len(tree) - 1)
    for node, drawn in enumerate(tree.children):
        if drawn:
            probabilities = solver.branching(target_probs[node], draft_probs[node], tree.drawn(node))
            for child in drawn:
                accepted[child] = accepted[node] * probabilities[tree.tokens[child]]
    return accepted
