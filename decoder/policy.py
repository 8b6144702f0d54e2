"""DynaTree's rules as pure functions: which node grows, how wide, and how past rounds move the knobs.

Knows neither models nor trees. Sources: DynaTree paper, sections 3.2 (breadth), 3.3 (depth), 3.4 (history).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decoder.budget import MOST_NODES
from decoder.config import DynaTree, Fixed, Linear, Rules, Selection
from decoder.knobs import KNOB_GAP


@dataclass(frozen=True)
class Growth:
    """How a tree grows."""

    least: Callable[[int], float]
    """Depth -> the least path probability with which a node gets children; infinite where none does."""
    breadth: Callable[[float], int]
    """Largest next-token probability of the draft at the node -> number of children."""
    widest: int
    """Largest value of `breadth`."""
    deepest: int
    """No node is deeper."""
    n_max: int
    """Most drafted nodes."""
    selection: Selection = "bfs"

    def expandable(self, depth: int, path_probability: float) -> bool:
        """Whether a node gets children."""
        return path_probability >= self.least(depth)


def growth(rules: Rules) -> Growth:
    """How a tree grows under the values that the knobs have now."""
    match rules:
        case DynaTree():
            return dynatree_growth(rules)
        case Linear():
            return linear_growth(rules)
        case Fixed():
            return fixed_growth(rules)


def linear_growth(rules: Linear) -> Growth:
    """A chain of K tokens."""
    return Growth(lambda depth: 0.0 if depth < rules.k else math.inf, lambda _: 1, 1, rules.k, rules.k)


def fixed_growth(rules: Fixed) -> Growth:
    """Top-B children at every node above depth D whose path is at least tau probable."""
    return Growth(
        lambda depth: rules.tau if depth < rules.depth else math.inf,
        lambda _: rules.branching,
        rules.branching,
        rules.depth,
        rules.n_max,
    )


def dynatree_growth(rules: DynaTree) -> Growth:
    """Adaptive breadth and depth."""
    return Growth(
        lambda depth: least_probability(rules, depth),
        lambda confidence: breadth(rules, confidence),
        max(rules.branching),
        rules.d_max,
        MOST_NODES if rules.automatic else rules.n_max,
        "best" if rules.automatic else rules.selection,
    )


def used_depth(d0: float) -> int:
    """The base depth in force: d0 is real-valued, trees are not."""
    return math.floor(d0 + 0.5)


def least_probability(rules: DynaTree, depth: int) -> float:
    """The least path probability with which a node grows children: greater for deep nodes than for shallow ones."""
    if depth >= rules.d_max:
        return math.inf
    anywhere = max(rules.rho_stop, rules.tau)
    return anywhere if depth < used_depth(rules.d0) else max(anywhere, rules.rho_deep)


def breadth(rules: DynaTree, confidence: float) -> int:
    """Number of children: few where the draft is confident, many where it is unsure."""
    narrow, middle, wide = rules.branching
    if confidence >= rules.tau_h:
        return narrow
    return wide if confidence < rules.tau_l else middle


def adapted(rules: DynaTree, depth_acceptances: Sequence[float]) -> DynaTree:
    """The rules after one more round, given the depth acceptance of every round so far, oldest first.

    Unchanged before a full window, and while history is off.
    """
    if not rules.history or len(depth_acceptances) < rules.window:
        return rules
    excess = math.fsum(depth_acceptances[-rules.window :]) / rules.window - rules.target_acceptance
    d0 = min(float(rules.d_max - 1), max(1.0, rules.d0 + rules.eta_d * excess))
    tau_h = min(1.0, max(rules.tau_l + KNOB_GAP, rules.tau_h - rules.eta_h * excess))
    return rules.moved(d0, tau_h)
