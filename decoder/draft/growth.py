"""Level-by-level growth of a tree under a rule, from any source of next tokens.

Knows neither models nor texts, and no costs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule, breadth, least_probability


@dataclass(slots=True)
class Children:
    """The best next tokens after one node; none where nothing is known."""

    tokens: list[int]
    logprobs: list[float]
    draft_logprobs: list[float] = field(default_factory=list)
    """The draft's own log-probabilities, where `logprobs` are conditioned on the noise of coupled sampling."""

    @property
    def confidence(self) -> float:
        """Largest next-token probability."""
        return math.exp(self.logprobs[0])


Source = Callable[[TokenTree, Sequence[int], int], Sequence[Children]]
"""(tree, nodes of one level, most of each) -> the best tokens after each of the nodes."""


def grow(tree: TokenTree, rule: TreeRule, source: Source, deepest: int) -> list[int]:
    """Grows a tree that holds its root alone, by a rule; returns the nodes that stay, parents before children.

    Args:
        tree: Grows in place.
        rule: Which nodes get children, how many, and how many nodes stay.
        source: What knows the best next tokens.
        deepest: Levels that the context has room for.
    """
    n_max, widest = rule.budget.n_max, int(rule.growth.wide)
    level = [0]
    while level and tree.depths[level[0]] < deepest and (rule.budget.best or len(tree) <= n_max):
        parents = may_grow(tree, _staying(tree, level, rule), rule)
        found, level = source(tree, parents, widest) if parents else (), []
        for parent, options in zip(parents, found, strict=True):
            if not options.tokens:
                continue
            width: int = breadth(rule.growth, options.confidence)
            room = width if rule.budget.best else min(width, max(0, n_max + 1 - len(tree)))
            level += tree.grow(parent, options.tokens[:room], options.logprobs[:room], options.draft_logprobs[:room])
    return tree.most_probable(n_max) if rule.budget.best else list(range(len(tree)))


def may_grow(tree: TokenTree, level: Sequence[int], rule: TreeRule) -> list[int]:
    """The nodes of a level that the rule gives children."""
    if rule.budget.best and len(level) > rule.budget.n_max:
        level = sorted(sorted(level, key=lambda node: -tree.path_logprobs[node])[: rule.budget.n_max])
    least = least_probability(rule.growth, tree.depths[level[0]]) if level else math.inf
    return [node for node in level if tree.path_probability(node) >= least]


def _staying(tree: TokenTree, level: list[int], rule: TreeRule) -> list[int]:
    """The nodes of a level that may stay: where the best are chosen, none beyond `n_max` can come back in later."""
    if not rule.budget.best or len(tree) - 1 <= rule.budget.n_max:
        return level
    return [node for node in tree.most_probable(rule.budget.n_max) if node >= level[0]]
