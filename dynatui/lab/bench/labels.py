"""Roots along one text, and their labels. The trees of all shapes at a root share sampled tokens. The label of a shape
is the expected number of tokens of a round, where the expectation is over the verifier's random numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes
from decoder.draft.draft_passes import DraftPasses
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import probabilities
from decoder.selector.policy import LOOKED_BACK, Root
from decoder.tree import TokenTree
from decoder.verify.lossless.batched import draw
from decoder.verify.lossless.bottom_up import NodeSplit, post_order, split_node
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Rows
from decoder.verify.lossless.top_down import Solver
from decoder.verify.lossless.verifiers import SOLVERS

LABELLED = (*SOLVERS, "naive", "block", "traversal")
Label: TypeAlias = Callable[[DrawnTree], float]


@dataclass(frozen=True)
class SharedDraws:
    """The draws (sampled tokens) below one root that delayed trees of all shapes share."""

    most: DelayedTree
    """Shape with the largest K, L1 and L2."""
    tree: TokenTree
    trunk: Sequence[int]
    """The root and all nodes of the longest path: one node more than the number of levels of the deepest tree."""
    sides: Mapping[int, Sequence[Sequence[int]]]
    """Nodes of each rollout beside the longest path. The key of a rollout is L1, the depth of the path's node at which
    the rollout begins.
    """

    @cached_property
    def shapes(self) -> list[DelayedTree]:
        return distinct_shapes(self.most.k, self.most.l1, self.most.l2)

    @cached_property
    def subtrees(self) -> list[DrawnTree]:
        """The delayed tree of each shape. Nodes have their numbers in `tree`; a node that a shape lacks is no child."""
        tokens, parents = tuple(self.tree.tokens), tuple(self.tree.parents)
        return [DrawnTree(tokens, parents, self._children(shape)) for shape in self.shapes]

    def _children(self, shape: DelayedTree) -> tuple[tuple[int, ...], ...]:
        children: list[tuple[int, ...]] = [()] * len(self.tree)
        end, first = self.trunk[shape.l1], self.trunk[shape.l1 + 1 :]
        rollouts = [[end, *side[: shape.l2]] for side in (first, *self.sides[shape.l1][: shape.k - 1])]
        for path in (self.trunk[: shape.l1 + 1], *rollouts):
            for parent, node in pairwise(path):
                children[parent] += (node,)
        return tuple(children)


@dataclass(frozen=True)
class RootDraws:
    """Shared draws below one root, with both models' distributions after all N nodes of `draws.tree`."""

    draws: SharedDraws
    target_probs: Rows
    """Shape (N, V)."""
    draft_probs: Rows
    """Shape (N, V); zeros after nodes without draws."""

    def expected_tokens(self, verifier: str) -> Float[np.ndarray, "A"]:
        """Expected tokens per round of each shape; NaN if the verifier (one of `LABELLED`) cannot verify the shape."""
        trees = self.draws.subtrees
        if verifier == "block":  # it verifies trees of one path only, for which it equals traversal verification
            one_path = [shape.k == 1 for shape in self.draws.shapes]
            return np.where(one_path, self.expected_tokens("traversal"), np.nan)
        if verifier == "naive":
            verifier, trees = "naive_tree", [tree.first_path() for tree in trees]
        label = self._bottom_up() if verifier == "traversal" else self._top_down(SOLVERS[verifier])
        return np.array([label(tree) for tree in trees])

    def _top_down(self, solver: Solver) -> Label:
        """Sum of the nodes' acceptance probabilities (Thomas et al. 2026, equation 3)."""

        @cache
        def branching(node: int, drawn: tuple[int, ...]) -> Mapping[int, float]:
            return solver.branching(self.target_probs[node], self.draft_probs[node], drawn)

        def label(tree: DrawnTree) -> float:
            reached = {0: 1.0}
            for node, children in enumerate(tree.children):
                if children and node in reached:
                    probabilities = branching(node, tuple(tree.drawn(node)))
                    reached |= {child: reached[node] * probabilities[tree.tokens[child]] for child in children}
            return sum(reached.values())

        return label

    def _bottom_up(self) -> Label:
        """Expected depth of the node at which verification stops, plus 1 for the target's own token."""

        @cache
        def split(node: int, drawn: tuple[int, ...], probability: float) -> NodeSplit:
            return split_node(self.target_probs[node], self.draft_probs[node], drawn, probability)

        depths = self.draws.tree.depths

        def label(tree: DrawnTree) -> float:
            expected, left = 1.0, 1.0
            for stop in post_order(tree, lambda node, given: split(node, tuple(tree.drawn(node)), given)):
                expected += depths[stop.node] * stop.probability * left
                left *= 1 - stop.probability
            return expected

        return label


class TextRoots:
    def __init__(
        self, pair: Pair, sampling: Sampling, most: DelayedTree, most_tokens: int, generator: RandomGenerator
    ) -> None:
        """`most` is the shape with the largest K, L1 and L2, and `most_tokens` the maximum length of the text. If roots
        must have hidden states, the pair must come from `Pair.observed`.
        """
        self._pair, self._sampling, self._most, self._generator = pair, sampling, most, generator
        shared = most.depth + (most.l1 + 1) * (most.k - 1) * most.l2
        self._cache = pair.target.new_cache(most_tokens + 1 + shared)
        self._draft = DraftPasses(pair.draft_model, pair.vocabulary, most_tokens)
        self._text: Sequence[int] = ()

    @torch.inference_mode()
    def advance(self, text: Sequence[int]) -> Root:
        """Root at the last token of a text of at least two tokens, which continues the text of the previous call."""
        self._text = text
        target_logits = self._pair.target.read(self._cache, text[self._cache.length : -1])
        target_hidden = self._pair.target.hidden
        draft_logits, _ = self._draft.again_after(text, LOOKED_BACK)
        logits = torch.cat([target_logits[None].float(), draft_logits.float()])
        rows = probabilities(logits, [self._sampling] * (1 + LOOKED_BACK))
        return Root(rows[0], rows[1], rows[2], _hidden(target_hidden, self._draft.hidden), len(text), self._sampling)

    @torch.inference_mode()
    def drawn(self) -> RootDraws:
        """Shared draws below the current root, sampled anew at each call."""
        draws = shared_draws(self._draft, self._text, self._sampling, self._most, self._generator)
        tree = draws.tree
        positions = [len(self._text) - 1 + depth for depth in tree.depths]
        logits = self._pair.target.forward(self._cache, tree.tokens, positions, tree.visible())
        self._cache.keep([])
        target_probs = probabilities(logits, [self._sampling] * len(tree)).double().cpu().numpy()
        draft_probs = np.zeros_like(target_probs)
        for node, node_draws in (tree.draws or {}).items():
            draft_probs[node] = node_draws.row.double().cpu().numpy()
        return RootDraws(draws, target_probs, draft_probs)


def shared_draws(
    draft: DraftPasses, text: Sequence[int], sampling: Sampling, most: DelayedTree, generator: RandomGenerator
) -> SharedDraws:
    """Samples the draws that trees of all shapes share below the last token of a text, one level after another."""
    draft.begin_tree()
    tree = TokenTree([text[-1]], draws={})
    trunk, sides = [0], {l1: [list[int]() for _ in range(most.k - 1)] for l1 in range(most.l1 + 1)}
    for depth in range(most.depth):
        growing = [side for l1, group in sides.items() for side in group if l1 <= depth < l1 + most.l2]
        ends = [trunk[-1], *(side[-1] if side else trunk[-1] for side in growing)]
        nodes = list(dict.fromkeys(ends))
        if depth:
            logits, _ = draft.after_level(tree, nodes)
        else:
            logits = draft.again_after(text, 1)[0]
        rows = probabilities(logits, [sampling] * len(nodes))
        tokens = draw(rows[torch.tensor([nodes.index(end) for end in ends]).to(rows.device)], generator).tolist()
        for end, token, rollout in zip(ends, tokens, [trunk, *growing], strict=True):
            row = rows[nodes.index(end)]
            rollout.extend(tree.draw(end, [token], [float(row[token].log())], row))
    draft.commit([])
    return SharedDraws(most, tree, trunk, sides)


def _hidden(target: Tensor | None, draft: Tensor | None) -> tuple[Tensor, ...]:
    return () if target is None or draft is None else (target[-1], draft[-2], draft[-1])
