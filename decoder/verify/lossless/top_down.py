"""Verification from the root down: a solver chooses the token after a node, and the walk goes on while it was drawn.

Any solver whose token follows the target's row, over draws that are independent given the draft's row, makes the walk
lossless on i.i.d. rollouts and delayed trees (the paper, section 3.2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from decoder.verify.lossless.coins import Coins
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.rows import Row, Rows, require_numbers

Accepted: TypeAlias = tuple[list[int], int]
"""The accepted nodes below the root, in path order, and the token after them."""
Verify: TypeAlias = Callable[[DrawnTree, Rows, Rows, Coins], Accepted]
"""From a tree, the target's and the draft's rows after its nodes, and coins."""


@dataclass(frozen=True)
class Solver:
    """One way to choose the token after a node, mostly among the k tokens that were drawn there.

    Rows have shape (V,); the target's come first, then the draft's, then the drawn tokens or their number k >= 1.
    """

    solve: Callable[[Row, Row, Sequence[int], Coins], int]
    """The token; over i.i.d. draws it follows the target's row."""
    acceptance_rate: Callable[[Row, Row, int], float]
    """The chance that it is a drawn one, over k i.i.d. draws (the paper, appendix C)."""
    branching: Callable[[Row, Row, Sequence[int]], Mapping[int, float]]
    """The chance of each distinct drawn token, given the draws (the paper, appendix D)."""


def descend(tree: DrawnTree, choose: Callable[[int], int]) -> Accepted:
    """Walks from the root to where the token chosen after a node was not drafted."""
    node, path = 0, []
    while (child := tree.child(node, token := choose(node))) is not None:
        path.append(child)
        node = child
    return path, token


def verify(solver: Solver, tree: DrawnTree, target_probs: Rows, draft_probs: Rows, coins: Coins) -> Accepted:
    """Verifies a tree with a solver; shapes (N, V).

    Raises:
        ModelError: A probability is NaN.
    """
    require_numbers(float(target_probs.sum()))
    require_numbers(float(draft_probs.sum()))

    def choose(node: int) -> int:
        if not tree.children[node]:
            return coins.choice(target_probs[node])
        return solver.solve(target_probs[node], draft_probs[node], tree.drawn(node), coins)

    return descend(tree, choose)


def expected_tokens(solver: Solver, tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> float:
    """Expected block efficiency of a tree: accepted tokens and the one after them, over the coins alone.

    A sum over distinct nodes (the paper, equation 3); shapes (N, V).
    """
    return sum(reached(solver, tree, target_probs, draft_probs))


def reached(solver: Solver, tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[float]:
    """The chance to reach each node, over the coins alone: a function of what was drawn above it. Shapes (N, V)."""
    reach = [1.0] + [0.0] * (len(tree) - 1)
    for node, drawn in enumerate(tree.children):
        if drawn:
            chances = solver.branching(target_probs[node], draft_probs[node], tree.drawn(node))
            for child in drawn:
                reach[child] = reach[node] * chances[tree.tokens[child]]
    return reach
