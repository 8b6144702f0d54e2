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
"""(target row, draft row, sampled tokens, random generator) -> the token chosen after a node. If the sampled tokens are
i.i.d. samples from the draft row, the chosen token has the target's distribution.
"""


@dataclass(frozen=True)
class Solver:
    """Closed-form acceptance probabilities of a rule that chooses the token after a node with k sampled tokens.

    Arguments are the target's row (V,), the draft's row (V,), and the sampled tokens or their number k >= 1.
    """

    acceptance_rate: Callable[[Row, Row, int], float]
    """Probability that the chosen token is one of k i.i.d. sampled tokens (Thomas et al. 2026, appendix C)."""
    branching: Callable[[Row, Row, Sequence[int]], Mapping[int, float]]
    """Probability that each distinct sampled token is chosen, given all sampled tokens (Thomas et al. 2026, appendix
    D).
    """


def descend(tree: DrawnTree, choose: Callable[[int], int]) -> Accepted:
    """Walks from the root until the token chosen after a node is none of the tokens drafted after the node."""
    node, path = 0, []
    while (child := tree.child(node, token := choose(node))) is not None:
        path.append(child)
        node = child
    return path, token


def reach(solver: Solver, tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[float]:
    """Probability that the verifier accepts each node, given the tree. The rows have shape (N, V)."""
    accepted = [1.0] + [0.0] * (len(tree) - 1)
    for node, drawn in enumerate(tree.children):
        if drawn:
            probabilities = solver.branching(target_probs[node], draft_probs[node], tree.drawn(node))
            for child in drawn:
                accepted[child] = accepted[node] * probabilities[tree.tokens[child]]
    return accepted
