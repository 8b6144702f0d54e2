"""The shape of a delayed tree (section 5 of the paper cited in `decoder.verify.lossless`), and the actions of a
selector: all distinct shapes with K from 1 to 4, L1 up to 8 and L2 up to 8. Imports no torch, since the option parser
imports this module.
"""

from dataclasses import dataclass
from itertools import product

from decoder.errors import require
from decoder.knobs import require_feasible


@dataclass(frozen=True)
class DelayedTree:
    """A path of `l1` sampled tokens, then `k` rollouts of `l2` sampled tokens each from the end of the path."""

    k: int
    l1: int
    l2: int

    def __post_init__(self) -> None:
        require(self.k >= 1, f"K is {self.k}; give 1 or more", "k")
        for name, length in (("L1", self.l1), ("L2", self.l2)):
            require(length >= 0, f"{name} is {length}; give 0 or more", name.lower())
        require_feasible({"K": self.k, "L1": self.l1, "L2": self.l2}, "k", "l1", "l2")

    @property
    def depth(self) -> int:
        return self.l1 + self.l2

    @property
    def most_nodes(self) -> int:
        """Largest number of drafted nodes, reached if the rollouts share no nodes."""
        return self.l1 + self.k * self.l2

    def canonical(self) -> "DelayedTree":
        """The shape that stands for all shapes with the same trees; if it has no branches, K = 1 and L1 = 0."""
        return DelayedTree(1, 0, self.depth) if self.k == 1 or self.l2 == 0 else self

    def up_to(self, levels: int) -> "DelayedTree":
        l1 = min(self.l1, levels)
        return DelayedTree(self.k, l1, min(self.l2, levels - l1))


def distinct_shapes(most_k: int, most_l1: int, most_l2: int) -> list[DelayedTree]:
    """All canonical shapes up to these maxima. For (4, 8, 8), these are 233 of the 324 shapes (appendix E)."""
    shapes = product(range(1, most_k + 1), range(most_l1 + 1), range(most_l2 + 1))
    return list(dict.fromkeys(DelayedTree(*shape).canonical() for shape in shapes))


MOST = DelayedTree(4, 8, 8)
"""Largest K, L1 and L2 of an action."""
ACTIONS: tuple[DelayedTree, ...] = tuple(distinct_shapes(MOST.k, MOST.l1, MOST.l2))
"""The 233 actions, in the order of their numbers."""
PLACE = {action: number for number, action in enumerate(ACTIONS)}
LONGEST = MOST.depth
"""Number of levels of the deepest tree."""
MOST_NODES = MOST.most_nodes
"""Number of drafted nodes of the largest tree."""
ONE_PATH = tuple(action.k == 1 for action in ACTIONS)
"""Whether an action's tree is a single path, as the verifier `block` requires."""


def action_number(shape: DelayedTree) -> int:
    """Number of the action that describes the same trees as `shape`; raises KeyError if there is no such action."""
    return PLACE[shape.canonical()]
