"""Table of lossless verifiers by name, and statistics of a sampled tree for display: expected and actual acceptance,
and its upper bound. `decoder.verify.names` lists the kinds of drafting with which each verifier is lossless.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from decoder.events import Draws
from decoder.verify.lossless import batched, bottom_up, khisti, top_down
from decoder.verify.lossless.batched import VerifyOnDevice
from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.naive import NAIVE
from decoder.verify.lossless.nss import NSS
from decoder.verify.lossless.rows import Row, Rows
from decoder.verify.lossless.specinfer import SPECINFER
from decoder.verify.lossless.spectr import SPECTR
from decoder.verify.lossless.top_down import Solver

Reach: TypeAlias = Callable[[DrawnTree, Rows, Rows], list[float]]


@dataclass(frozen=True)
class LosslessVerifier:
    on_device: VerifyOnDevice
    """Verification on tensors; see `batched`."""
    reach: Reach
    """Acceptance probability of each node, given the tree; 1 for the root."""


def _top_down(solver: Solver, on_device: VerifyOnDevice) -> LosslessVerifier:
    return LosslessVerifier(on_device, partial(top_down.reach, solver))


def _bottom_up(stops: Callable[[DrawnTree, Rows, Rows], list[Stop]], on_device: VerifyOnDevice) -> LosslessVerifier:
    def reach(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[float]:
        return bottom_up.reach(tree, stops(tree, target_probs, draft_probs))

    return LosslessVerifier(on_device, reach)


def _first_path(whole: LosslessVerifier) -> LosslessVerifier:
    """`whole`, applied only to the path that follows each node's first sampled token."""
    return LosslessVerifier(
        lambda tree, target, draft, generator: whole.on_device(tree.first_path(), target, draft, generator),
        lambda tree, target, draft: whole.reach(tree.first_path(), target, draft),
    )


_NAIVE_TREE = _top_down(NAIVE, partial(batched.verify_planned, batched.NAIVE))

SOLVERS = {"nss": NSS, "naive_tree": NAIVE, "spectr": SPECTR, "specinfer": SPECINFER, "khisti": khisti.KHISTI}
"""Solvers by the verifier's name; statistics use the solvers' acceptance rates."""
VERIFIERS = {
    "nss": _top_down(NSS, partial(batched.verify_planned, batched.NSS)),
    "naive": _first_path(_NAIVE_TREE),
    "naive_tree": _NAIVE_TREE,
    "spectr": _top_down(SPECTR, partial(batched.verify_planned, batched.SPECTR)),
    "specinfer": _top_down(SPECINFER, partial(batched.verify_planned, batched.SPECINFER)),
    "khisti": _top_down(khisti.KHISTI, partial(batched.verify_visited, khisti.solve)),
    "block": _bottom_up(bottom_up.block_stops, partial(batched.verify_stops, batched.block_stops)),
    "traversal": _bottom_up(bottom_up.traversal_stops, partial(batched.verify_stops, batched.traversal_stops)),
}
"""Verifiers by name, in the order of Thomas et al. 2026: later verifiers use a larger part of the tree."""


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
