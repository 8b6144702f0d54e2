"""Level-by-level growth of a draft tree under a growth rule, from any source of next tokens. Independent of models,
texts and costs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from decoder.tree import TokenTree
from decoder.tree_rules import Growth, TreeRule, breadth, least_probability


@dataclass(slots=True)
class Children:
    """The best next tokens after one node, the most probable first."""

    tokens: list[int]
    logprobs: list[float]
    draft_logprobs: list[float] = field(default_factory=list)
    """The draft's own log-probabilities if `logprobs` are sharpened or depend on sampling noise; otherwise empty."""
    lost: bool = False
    """Whether the draft's logits are NaN or infinite."""

    @property
    def confidence(self) -> float:
        return math.exp(self.logprobs[0])


Source = Callable[[TokenTree, Sequence[int], Growth[float]], Sequence[Children]]
"""(tree, nodes of one level, growth rule) -> the best next tokens after each node, up to the rule's largest breadth."""


def grow(tree: TokenTree, rule: TreeRule, source: Source, deepest: int) -> list[int]:
    """Grows a tree in place from its root, its only node; returns the nodes within the rule's budget, parents before
    children. `deepest`: largest number of levels that the context allows.
    """
    n_max, least = rule.budget.n_max, rule.budget.least
    least_logprob = math.log(least) if least else -math.inf
    level = [0]
    while level and tree.depths[level[0]] < deepest and (rule.budget.best or len(tree) <= n_max):
        parents = may_grow(tree, _within_budget(tree, level, rule), rule)
        children, level = source(tree, parents, rule.growth) if parents else (), []
        for parent, options in zip(parents, children, strict=True):
            tree.lost |= options.lost
            if not options.tokens:
                continue
            width: int = breadth(rule.growth, options.confidence)
            room = width if rule.budget.best else min(width, max(0, n_max + 1 - len(tree)))
            if least:
                above = tree.path_logprobs[parent]
                room = sum(above + logprob >= least_logprob for logprob in options.logprobs[:room])
            level += tree.grow(parent, options.tokens[:room], options.logprobs[:room], options.draft_logprobs[:room])
    return kept_nodes(tree, rule)


def kept_nodes(tree: TokenTree, rule: TreeRule) -> list[int]:
    """The nodes of a grown tree that are kept."""
    every = not rule.budget.best or len(tree) - 1 <= rule.budget.n_max
    return list(range(len(tree))) if every else tree.most_probable(rule.budget.n_max)


def may_grow(tree: TokenTree, level: Sequence[int], rule: TreeRule) -> list[int]:
    if rule.budget.best and len(level) > rule.budget.growing:
        level = sorted(sorted(level, key=lambda node: -tree.path_logprobs[node])[: rule.budget.growing])
    threshold = least_probability(rule.growth, tree.depths[level[0]]) if level else math.inf
    return [node for node in level if tree.path_probability(node) >= threshold] if threshold > 0 else list(level)


def _within_budget(tree: TokenTree, level: list[int], rule: TreeRule) -> list[int]:
    """Nodes of a level; with `best`, only nodes whose children may be among the tree's `n_max` most probable nodes. A
    child is never more probable than its parent, so fewer than `n_max` - 1 nodes may be more probable than the parent.
    """
    if not rule.budget.best or len(tree) <= rule.budget.n_max:
        return level
    return [node for node in tree.most_probable(rule.budget.n_max - 1) if node >= level[0]]
