"""DynaTree's rules as pure functions: which node grows, how wide, which rule ended a tree, how history moves knobs.

Knows no models. Sources: DynaTree paper, sections 3.2 (breadth), 3.3 (depth), 3.4 (history).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

from decoder.config import AdaptiveTree, Auto, DynaTree, Fixed, Linear, Rules, Selection
from decoder.draft.tree_size.controller import MOST_NODES
from decoder.events import Limit
from decoder.knobs import KNOB_GAP
from decoder.tree import TokenTree

Adaptive = TypeVar("Adaptive", bound=AdaptiveTree)


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
            return adaptive_growth(rules, rules.n_max, rules.selection)
        case Auto():
            return adaptive_growth(rules, MOST_NODES, "best")
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


def adaptive_growth(rules: AdaptiveTree, n_max: int, selection: Selection) -> Growth:
    """Adaptive breadth and depth, of at most `n_max` nodes."""
    return Growth(
        lambda depth: least_probability(rules, depth),
        lambda confidence: breadth(rules, confidence),
        max(rules.branching),
        rules.d_max,
        n_max,
        selection,
    )


def used_depth(d0: float) -> int:
    """The base depth in force: d0 is real-valued, trees are not."""
    return math.floor(d0 + 0.5)


def least_probability(rules: AdaptiveTree, depth: int) -> float:
    """The least path probability with which a node grows children: greater for deep nodes than for shallow ones."""
    if depth >= rules.d_max:
        return math.inf
    anywhere = max(rules.rho_stop, rules.tau)
    return anywhere if depth < used_depth(rules.d0) else max(anywhere, rules.rho_deep)


def breadth(rules: AdaptiveTree, confidence: float) -> int:
    """Number of children: few where the draft is confident, many where it is unsure."""
    narrow, middle, wide = rules.branching
    if confidence >= rules.tau_h:
        return narrow
    return wide if confidence < rules.tau_l else middle


def adapted(rules: Adaptive, depth_acceptances: Sequence[float]) -> Adaptive:
    """The rules after one more round, given the depth acceptance of every round so far, oldest first.

    Unchanged before a full window, and while history is off.
    """
    if not rules.history or len(depth_acceptances) < rules.window:
        return rules
    excess = math.fsum(depth_acceptances[-rules.window :]) / rules.window - rules.target_acceptance
    d0 = min(float(rules.d_max - 1), max(1.0, rules.d0 + rules.eta_d * excess))
    tau_h = min(1.0, max(rules.tau_l + KNOB_GAP, rules.tau_h - rules.eta_h * excess))
    return rules.moved(d0, tau_h)


def limit(rules: Rules, tree: TokenTree, room: int) -> Limit:
    """Which rule refused children to the most probable leaf of a drafted tree.

    Where several did, the one that would have to yield first: no knob but that one lets this leaf grow.

    Args:
        rules: Those that the tree was drafted under.
        tree: As it is verified.
        room: Levels that the context leaves room for.
    """
    parents = set(tree.parents)
    leaf = max((node for node in range(len(tree)) if node not in parents), key=tree.path_logprobs.__getitem__)
    depth, chance = tree.depths[leaf], tree.path_probability(leaf)
    if depth >= room:
        return "context"
    match rules:
        case DynaTree():
            return _adaptive_limit(rules, depth, chance) or "n_max"
        case Auto():
            return _adaptive_limit(rules, depth, chance) or "cost"
        case Linear():
            return "k"
        case Fixed():
            return "fixed_depth" if depth >= rules.depth else "fixed_tau" if chance < rules.tau else "n_max"
        case _:
            assert_never(rules)


def _adaptive_limit(rules: AdaptiveTree, depth: int, chance: float) -> Limit | None:
    """The rule that refuses a node of this depth and path probability; None where it may grow."""
    if depth >= rules.d_max:
        return "d_max"
    if chance < max(rules.rho_stop, rules.tau):
        return "rho_stop" if rules.rho_stop >= rules.tau else "tau"
    return "d0" if chance < least_probability(rules, depth) else None
