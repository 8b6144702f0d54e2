"""Block efficiency of every shape at once, by closed forms, at roots along the target's own sampled text.

At each root one tree with most rollouts is drawn for each length of its path; all smaller shapes are cut from these, so
that they share draws (common random numbers), and no coin of a verifier adds noise. Every root is weighed alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from decoder.bench.sampling.asked import Asked, Place
from decoder.bench.sampling.log import BOUND, Expected
from decoder.draft.delayed import draw_tree
from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.draft_passes import DraftPasses
from decoder.forward.kv_cache import KvCache
from decoder.models.pair import Pair
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Sampling
from decoder.tree import TokenTree
from decoder.verify.lossless import top_down
from decoder.verify.lossless.acceptance_bound import acceptance_bound
from decoder.verify.lossless.coins import Coins, PhiloxCoins
from decoder.verify.lossless.drawn_tree import DrawnTree, draft_rows, drawn_tree
from decoder.verify.lossless.rows import Rows
from decoder.verify.lossless.verifiers import SOLVERS, VERIFIERS

DIGITS = 6
"""Decimals that are kept of a mean."""


@dataclass(frozen=True)
class Drawn:
    """A tree at a root, with the rows after its nodes."""

    tree: DrawnTree
    target_probs: Rows
    draft_probs: Rows

    def cut(self, k: int, l1: int, depth: int) -> "Drawn":
        """The tree of a smaller shape within this one, whose path has `l1` draws."""
        tree, nodes = self.tree.cut(k, l1, depth)
        return Drawn(tree, self.target_probs[nodes], self.draft_probs[nodes])

    def by_depth(self, verifier: str, k: int, l1: int) -> list[float]:
        """Block efficiency of the trees of so many rollouts that end at depth 0, 1, ... within this one.

        What a walk from the root reaches does not depend on what is drawn below, so that one tree tells all.
        """
        depth = max(self.tree.depths)
        if verifier in SOLVERS:
            whole = self.cut(k, l1, depth)
            reach = top_down.reach(SOLVERS[verifier], whole.tree, whole.target_probs, whole.draft_probs)
            totals: list[float] = np.cumsum(np.bincount(whole.tree.depths, reach)).tolist()
            return totals
        cuts = (self.cut(k, l1, each) for each in range(depth + 1))
        return [VERIFIERS[verifier].expected_tokens(each.tree, each.target_probs, each.draft_probs) for each in cuts]


class Roots:
    """Trees that the draft draws along one text, and the target's rows after their nodes."""

    def __init__(self, pair: Pair, sampling: Sampling, capacity: int, coins: Coins) -> None:
        self._pair = pair
        self._sampling = sampling
        self._coins = coins
        self._passes = DraftPasses(pair.draft, pair.vocabulary, capacity)
        self._cache: KvCache = pair.target.new_cache(capacity)

    @torch.inference_mode()
    def trees(self, text: Sequence[int], shapes: Sequence[DelayedTree]) -> Iterator[Drawn]:
        """One tree of each shape below the last token of a text, which goes on from the text before."""
        self._pair.target.read(self._cache, text[self._cache.length : -1])
        first = probabilities(self._passes.after_text(text), [self._sampling])
        for shape in shapes:
            yield self._drawn(text, shape, first)

    def _drawn(self, text: Sequence[int], shape: DelayedTree, first: torch.Tensor) -> Drawn:
        def rows(tree: TokenTree, nodes: Sequence[int]) -> torch.Tensor:
            if nodes[0] == 0:
                return first
            logits, positions = self._passes.after_level(tree, nodes)
            return probabilities(logits, [self._sampling] * len(positions))

        self._passes.begin_tree()
        tree = draw_tree(shape, text[-1], rows, self._coins)
        self._passes.commit([])
        positions = [len(text) - 1 + depth for depth in tree.depths]
        logits = self._pair.target.forward(self._cache, tree.tokens, positions, tree.visible())
        self._cache.keep([])
        target_probs = probabilities(self._pair.known(logits), [self._sampling] * len(tree))
        both = (target_probs, draft_rows(tree, target_probs))
        target, draft = (rows.double().cpu().numpy() for rows in both)
        return Drawn(drawn_tree(tree), target, draft)


def expected(pair: Pair, asked: Asked, place: Place, prompt: Sequence[int], text: Sequence[int]) -> Expected:
    """What closed forms say of a prompt and the text that the target went on with."""
    depth = asked.length * 2
    ends = [end for end in range(0, len(text), asked.roots_every) if len(prompt) + end + depth <= pair.context]
    coins = PhiloxCoins(asked.seed, asked.places().index(place))
    widest = [DelayedTree(asked.k, l1, asked.length) for l1 in range(asked.length + 1)]
    capacity = len(prompt) + len(text) + 1 + widest[-1].most_nodes
    roots = Roots(pair, asked.samplings[place.sampling], capacity, coins)
    found = []
    for end in ends:
        drawn = dict(enumerate(roots.trees([*prompt, *text[:end]], widest)))
        tokens = {verifier: _by_shape(asked, verifier, drawn) for verifier in asked.verifiers}
        found.append((tokens, *_along_path(asked, drawn[asked.length])))
    tokens_of, distances, acceptances = zip(*found, strict=True)
    return Expected(
        place=place,
        roots=len(ends),
        tokens={verifier: _mean([each[verifier] for each in tokens_of]) for verifier in asked.verifiers},
        distance=_mean(distances),
        acceptance={name: _mean([each[name] for each in acceptances]) for name in acceptances[0]},
    )


def _by_shape(asked: Asked, verifier: str, drawn: dict[int, Drawn]) -> list[float]:
    """Block efficiency of each shape, cut from the tree whose path is as long; of chains, the mean over all trees."""
    shapes = asked.shapes(verifier)
    chains = [tree.by_depth(verifier, 1, l1) for l1, tree in drawn.items()]
    pairs = {(shape.k, shape.l1) for shape in shapes if shape.k > 1}
    trees = {(k, l1): drawn[l1].by_depth(verifier, k, l1) for k, l1 in pairs}
    return [
        trees[shape.k, shape.l1][shape.depth]
        if shape.k > 1
        else float(np.mean([chain[shape.depth] for chain in chains if shape.depth < len(chain)]))
        for shape in shapes
    ]


def _along_path(asked: Asked, drawn: Drawn) -> tuple[list[float], dict[str, list[float]]]:
    """By depth along a tree's path, the distance of the rows and every solver's acceptance (the paper, figure 1)."""
    levels = [(drawn.target_probs[node], drawn.draft_probs[node]) for node in range(asked.length + 1)]
    acceptance = {
        name: [SOLVERS[name].acceptance_rate(target, draft, asked.k) for target, draft in levels]
        for name in SOLVERS
        if name in asked.verifiers
    }
    acceptance[BOUND] = [acceptance_bound(target, draft, asked.k) for target, draft in levels]
    return [float(np.abs(target - draft).sum()) for target, draft in levels], acceptance


def _mean(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in np.mean(rows, axis=0))
