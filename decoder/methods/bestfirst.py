"""bestfirst: a tree of the nodes with the highest path probabilities, as in OPT-Tree, DDTree and TALON. By the draft's
probabilities, the expected number of accepted nodes of a tree is the sum of its nodes' path probabilities; of all trees
with as many nodes, this tree has the largest sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from decoder.errors import require
from decoder.events import Limit
from decoder.knobs import HIGHEST_DEPTH, KnobInfo, require_feasible
from decoder.methods.method import N_MAX, Method, Option, Sweep, whole_numbers
from decoder.tree_rules import Budget, Rules, TreeRule, fixed_growth

MOST_CHILDREN = 32
"""Largest number of children of a node; each omitted child has less than 1/32 of the node's path probability."""


@dataclass(frozen=True)
class BestFirst(Rules):
    """A tree of the `n_max` most probable nodes with depth <= `depth`."""

    n_max: int = 8
    depth: int = 5

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        N_MAX,
        KnobInfo("best_depth", "D", "no path is deeper", "whole",
                 lambda own: (1.0, float(max(HIGHEST_DEPTH, own.depth))), turns="depth",
                 keys="-=", brief="depth", key_help="bestfirst: depth"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(self.n_max >= 1, f"n_max is {self.n_max}; give 1 or more")
        require(self.depth >= 1, f"the best-first tree's depth is {self.depth}; give 1 or more")
        require_feasible({"n_max": self.n_max, "the best-first tree's depth": self.depth})

    def rule(self) -> TreeRule:
        # A child of rank N + 1 has N siblings that are at least as probable. So with up to N children per node, none of
        # the N best nodes is missing.
        children = min(self.n_max, MOST_CHILDREN)
        return TreeRule(fixed_growth(self.depth, 0, children), Budget(self.n_max, best=True))

    def limit(self, depth: int, probability: float) -> Limit:
        del probability
        return "best_depth" if depth >= self.depth else "n_max"


def _read(shape: str) -> Mapping[str, Any]:
    return dict(zip(("n_max", "depth"), whole_numbers("--bestfirst", shape, example="16,6"), strict=True))


METHOD = Method(
    "bestfirst",
    "a tree of the most probable nodes",
    BestFirst(),
    options=(
        Option(
            "bestfirst",
            str,
            "N,D",
            "Number of nodes of the best-first tree, and its depth.",
            ("n_max", "depth"),
            _read,
            lambda own: f"{own.n_max},{own.depth}",
        ),
    ),
    sweep=Sweep(
        "NxD,..",
        "Best-first trees to measure, each as number of nodes x depth.",
        f"{BestFirst.n_max}x{BestFirst.depth}",
        "16x6",
        lambda n_max, depth: {"n_max": n_max, "depth": depth},
    ),
)
