"""The shapes that a selector chooses from: all distinct delayed trees up to four rollouts and lengths of eight."""

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes

MOST_K, MOST_L1, MOST_L2 = 4, 8, 8
ACTIONS: tuple[DelayedTree, ...] = tuple(distinct_shapes(MOST_K, MOST_L1, MOST_L2))
"""By number; 233 of them."""
PLACE = {action: number for number, action in enumerate(ACTIONS)}
LONGEST = MOST_L1 + MOST_L2
"""Most levels of a tree."""
MOST_NODES = MOST_L1 + MOST_K * MOST_L2
"""Most drafted nodes of a tree."""
ONE_PATH = tuple(action.k == 1 for action in ACTIONS)
"""Which actions draw one path, for verifiers that take no other."""


def number(shape: DelayedTree) -> int:
    """The number of the action that draws the same trees; raises KeyError where there is none."""
    return PLACE[shape.canonical()]
