"""Table of the selector's actions: all distinct delayed trees with K from 1 to 4, and L1 and L2 of at most 8."""

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes

MOST = DelayedTree(4, 8, 8)
"""Shape with the largest K, L1 and L2."""
ACTIONS: tuple[DelayedTree, ...] = tuple(distinct_shapes(MOST.k, MOST.l1, MOST.l2))
"""Shapes of delayed trees by action number; there are 233."""
PLACE = {action: number for number, action in enumerate(ACTIONS)}
LONGEST = MOST.depth
"""Number of levels of the deepest tree."""
MOST_NODES = MOST.most_nodes
"""Number of drafted nodes of the largest tree."""
ONE_PATH = tuple(action.k == 1 for action in ACTIONS)
"""For each action, whether its tree is a single path, as the verifier `block` requires."""


def number(shape: DelayedTree) -> int:
    """Number of the action that describes the same trees as a shape; raises KeyError if there is no such action."""
    return PLACE[shape.canonical()]
