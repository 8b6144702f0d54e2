"""The shapes that a selector chooses from: all distinct delayed trees up to four rollouts and lengths of eight."""

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes

MOST = DelayedTree(4, 8, 8)
"""The largest K, L1 and L2."""
ACTIONS: tuple[DelayedTree, ...] = tuple(distinct_shapes(MOST.k, MOST.l1, MOST.l2))
"""By number; 233 of them."""
PLACE = {action: number for number, action in enumerate(ACTIONS)}
LONGEST = MOST.depth
"""Most levels of a tree."""
MOST_NODES = MOST.most_nodes
"""Most drafted nodes of a tree."""
ONE_PATH = tuple(action.k == 1 for action in ACTIONS)
"""Which actions draw one path, for verifiers that take no other."""


def number(shape: DelayedTree) -> int:
    """The number of the action that draws the same trees; raises KeyError where there is none."""
    return PLACE[shape.canonical()]
