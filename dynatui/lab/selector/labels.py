"""Roots along one text, and their labels. The trees of all shapes at a root share sampled tokens. The label of a shape
is the expected number of tokens of a round, where the expectation is over the verifier's random numbers.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

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
from decoder.verify.lossless.batched.plans import draw
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Rows
from decoder.verify.lossless.top_down import Solver
from decoder.verify.lossless.traversal import NodeSplit, split_node
from decoder.verify.lossless.verifiers import SOLVERS

LABELLED = (*SOLVERS, "naive", "block", "traversal")


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

    def rollouts(self, k: int, l1: int, l2: int) -> list[list[int]]:
        """Nodes of each rollout, without the node at which the rollouts begin."""
        first = list(self.trunk[l1 + 1 : l1 + l2 + 1])
        return [first, *(list(side[:l2]) for side in self.sides.get(l1, ())[: k - 1])]

    def subtree(self, shape: DelayedTree) -> tuple[DrawnTree, list[int]]:
        """The delayed tree of a shape, and for each node of this tree, the number of the same node in `tree`."""
        nodes, children, number = [0], defaultdict[int, list[int]](list), {0: 0}

        def put(parent: int, node: int) -> None:
            if node not in number:
                number[node] = len(nodes)
                nodes.append(node)
            children[parent].append(node)

        for parent, node in zip(self.trunk, self.trunk[1 : shape.l1 + 1], strict=False):
            put(parent, node)
        ends = [self.trunk[shape.l1]] * shape.k
        for level in zip(*self.rollouts(shape.k, shape.l1, shape.l2), strict=True):
            for parent, node in zip(ends, level, strict=True):
                put(parent, node)
            ends = list(level)
        return (
            DrawnTree(
                tuple(self.tree.tokens[node] for node in nodes),
                tuple(number.get(self.tree.parents[node], -1) for node in nodes),
                tuple(tuple(number[child] for child in children[node]) for node in nodes),
            ),
            nodes,
        )


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
        shapes = self.draws.shapes
        if verifier in SOLVERS:
            return _TopDown(self, SOLVERS[verifier]).labels()
        if verifier == "naive":
            paths = _TopDown(self, SOLVERS["naive_tree"]).path()
            return np.array([paths[shape.depth] for shape in shapes])
        # Block verification allows trees of one path only. For such trees, it equals traversal verification.
        labels = _BottomUp(self).labels()
        return labels if verifier == "traversal" else np.where([shape.k == 1 for shape in shapes], labels, np.nan)


@dataclass(frozen=True)
class _TopDown:
    """Labels of top-down verifiers: acceptance probabilities, summed over levels (Thomas et al. 2026, equation 3)."""

    root: RootDraws
    solver: Solver
    known: dict[tuple[int, tuple[int, ...]], Mapping[int, float]] = field(default_factory=dict)

    def labels(self) -> Float[np.ndarray, "A"]:
        path = self.path()
        pairs = {(shape.k, shape.l1) for shape in self.root.draws.shapes if shape.k > 1}
        branched = {pair: self._below(*pair) for pair in pairs}
        return np.array(
            [
                path[shape.depth]
                if shape.k == 1
                else path[shape.l1] + self._reach[shape.l1] * branched[shape.k, shape.l1][shape.l2 - 1]
                for shape in self.root.draws.shapes
            ]
        )

    def path(self) -> Float[np.ndarray, "L"]:
        """Expected tokens per round of a single path, for each path length from 0."""
        return np.cumsum(self._reach, dtype=np.float64)

    @cached_property
    def _reach(self) -> Float[np.ndarray, "L"]:
        tokens = self.root.draws.tree.tokens
        edges = [(node, tokens[child]) for node, child in pairwise(self.root.draws.trunk)]
        probabilities = [self._branching(node, (token,))[token] for node, token in edges]
        return np.cumprod([1.0, *probabilities], dtype=np.float64)

    def _below(self, k: int, l1: int) -> Float[np.ndarray, "L2"]:
        """Expected number of accepted nodes below an accepted branching node, for each length of the rollouts."""
        tokens, by_level = self.root.draws.tree.tokens, []
        start = self.root.draws.trunk[l1]
        ends, reach = [start] * k, {start: 1.0}
        for level in zip(*self.root.draws.rollouts(k, l1, self.root.draws.most.l2), strict=True):
            children_of = defaultdict[int, list[int]](list)
            for parent, node in zip(ends, level, strict=True):
                children_of[parent].append(node)
            below: dict[int, float] = {}
            for parent, nodes in children_of.items():
                probabilities = self._branching(parent, tuple(tokens[node] for node in nodes))
                below |= {node: reach[parent] * probabilities[tokens[node]] for node in nodes}
            by_level.append(sum(below.values()))
            ends, reach = list(level), below
        return np.cumsum(by_level)

    def _branching(self, node: int, drawn: tuple[int, ...]) -> Mapping[int, float]:
        if (node, drawn) not in self.known:
            rows = self.root.target_probs[node], self.root.draft_probs[node]
            self.known[node, drawn] = self.solver.branching(*rows, drawn)
        return self.known[node, drawn]


@dataclass(frozen=True)
class _Judgement:
    depth: int
    handed: float
    """Probability of stopping at the node if the node is a leaf."""
    left: float
    """Probability of stopping at the node after the rejection of all draws that follow the node."""


@dataclass(frozen=True)
class _BottomUp:
    """Labels of bottom-up verifiers: sums over the nodes at which verification can stop, in post-order. If trees have
    the same K and L1 but different L2, their probabilities of stopping differ only at the leaves.
    """

    root: RootDraws
    known: dict[tuple[int, tuple[int, ...], float], NodeSplit] = field(default_factory=dict)

    def labels(self) -> Float[np.ndarray, "A"]:
        longest = {
            (shape.k, shape.l1): shape for shape in sorted(self.root.draws.shapes, key=lambda shape: shape.depth)
        }
        judged_of = {key: list(self._post_order(shape)) for key, shape in longest.items()}
        return np.array([_tokens(judged_of[shape.k, shape.l1], shape.depth) for shape in self.root.draws.shapes])

    def _post_order(self, shape: DelayedTree) -> Iterator[_Judgement]:
        tree, nodes = self.root.draws.subtree(shape)

        def visit(place: int, handed: float) -> Iterator[_Judgement]:
            division = self._judge(nodes[place], tuple(tree.drawn(place)), handed)
            for slot, child, owns in tree.slots(place):
                if owns and division.slots[slot] > 0:
                    yield from visit(child, division.slots[slot])
            yield _Judgement(tree.depths[place], handed, division.probability)

        return visit(0, 1.0)

    def _judge(self, node: int, drawn: tuple[int, ...], handed: float) -> NodeSplit:
        key = node, drawn, handed
        if key not in self.known:
            self.known[key] = split_node(self.root.target_probs[node], self.root.draft_probs[node], drawn, handed)
        return self.known[key]


def _tokens(judgements: Sequence[_Judgement], deepest: int) -> float:
    """Expected tokens per round of the tree without the nodes that are deeper than `deepest`."""
    expected, left = 1.0, 1.0
    for node in judgements:
        if node.depth <= deepest:
            probability = node.handed if node.depth == deepest else node.left
            expected += node.depth * probability * left
            left *= 1 - probability
    return expected


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
