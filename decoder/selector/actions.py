"""Table of the selector's actions: all distinct delayed trees with K from 1 to 4, L1 up to 8 and L2 up to 8."""

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes

MOST = DelayedTree(4, 8, 8)
ACTIONS: tuple[DelayedTree, ...] = tuple(distinct_shapes(MOST.k, MOST.l1, MOST.l2))
"""The 233 actions, in the order of their numbers."""
PLACE = {action: number for number, action in enumerate(ACTIONS)}
LONGEST = MOST.depth
"""Number of levels of the deepest tree."""
MOST_NODES = MOST.most_nodes
"""Number of drafted nodes of the largest tree."""
ONE_PATH = tuple(action.k == 1 for action in ACTIONS)
"""Whether an action's tree is a single path, as the verifier `block` requires."""


def number(shape: DelayedTree) -> int:
    """Number of the action that describes the same trees as `shape`; raises KeyError if there is no such action."""
    return PLACE[shape.canonical()]
