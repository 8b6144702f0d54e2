"""Expected and actual acceptance of a sampled tree, and its upper bound, for display only."""

from collections.abc import Sequence

import numpy as np

from decoder.events import Draws
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.rows import Row, Rows
from decoder.verify.lossless.verifiers import SOLVERS, VERIFIERS


def acceptance_bound(target_probs: Row, draft_probs: Row, draws: int) -> float:
    """Minimum of p(A) + 1 - q(A)^k over token sets A; a set of the tokens with the smallest p / q attains it."""
    unlikely = np.divide(target_probs, draft_probs, out=np.full_like(target_probs, np.inf), where=draft_probs > 0)
    order = np.argsort(unlikely, kind="stable")
    target_mass, draft_mass = np.cumsum(target_probs[order]), np.cumsum(draft_probs[order])
    return min(1.0, float((target_mass + 1 - draft_mass**draws).min()))


MOST_NUMBERS = 1 << 20
"""Largest number of nodes times vocabulary size; above it, statistics of all nodes would take too long."""
_SOLVERS = {"naive": SOLVERS["naive_tree"], **SOLVERS}


def tree_statistics(
    name: str, tree: DrawnTree, target_probs: Rows, draft_probs: Rows, path: Sequence[int]
) -> tuple[list[float], list[Draws]]:
    """Acceptance probability of every node, and statistics of the tokens sampled after each accepted node."""
    solver = _SOLVERS.get(name)
    reach = VERIFIERS[name].reach(tree, target_probs, draft_probs)
    judged_tree = tree.first_path() if name == "naive" else tree
    draws = []
    for node in (0, *path):
        count = len(judged_tree.children[node])
        if count:
            rows = target_probs[node], draft_probs[node]
            draws.append(
                Draws(
                    count=count,
                    accepted=any(child in path for child in tree.children[node]),
                    l1=float(np.abs(rows[0] - rows[1]).sum()),
                    acceptance=solver.acceptance_rate(*rows, count) if solver else None,
                    bound=acceptance_bound(*rows, count),
                )
            )
    return reach, draws
