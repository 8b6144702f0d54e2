"""A draft model as a proposer: it catches up with the text, then grows a tree level by level.

Keeps its keys and values across rounds: a drafted node that was accepted is not computed again. Knows nothing of the
target. One forward pass brings the next-token distributions of a whole level (DynaTree paper, section 3.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.proposer import Proposal
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.forward.language_model import LanguageModel
from decoder.sampling.perturbation import Perturbation
from decoder.tree import TokenTree, visibility
from decoder.tree_rules import TreeRule, breadth, least_probability

MORE_ROWS = 1024
"""Room that is made at once: a cache that grew level by level would be copied level by level."""
PROBED_FROM, PROBED_ROWS = 4, 32
"""Rows; a draft that lags behind by more has missed rounds, and is tested on so many of the latest."""


@dataclass(slots=True)
class Children:
    """The best next tokens after one node."""

    tokens: list[int]
    logprobs: list[float]
    draft_logprobs: list[float] = field(default_factory=list)
    """The draft's own, where `logprobs` are chances under the noise of coupled sampling."""

    @property
    def confidence(self) -> float:
        """Largest next-token probability."""
        return math.exp(self.logprobs[0])


class ModelDrafter:
    """A `Proposer` of one text; `sizes` decides how many nodes pay, without it the rule alone does.

    It guesses what the target chooses under the same perturbation, or greedily.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocabulary: int,
        capacity: int,
        sizes: TreeSizeController | None = None,
        perturbation: Perturbation | None = None,
    ) -> None:
        self.cache = model.new_cache(capacity)
        self.forwards = 0
        self._capacity = capacity
        self._model = model
        self._sizes = sizes
        self._perturbation = perturbation
        self._vocabulary = vocabulary
        self._rows: dict[int, int] = {}
        """Cache row of each node that was forwarded in this round."""
        self._seen: dict[int, list[int]] = {}
        """The rows of such a node and its ancestors, counted from the first row that does not belong to the text."""

    def read(self, tokens: Sequence[int]) -> None:
        """See `Proposer`."""
        self._model.read(self.cache, tokens)

    def reserve(self, rows: int) -> None:
        """See `Proposer`; a tree of which more is tried makes room itself."""
        self._capacity = max(self._capacity, rows)
        self.cache.reserve(rows)

    def propose(self, text: Sequence[int], rule: TreeRule[float], room: int) -> Proposal:
        """See `Proposer`."""
        tree, behind, before = TokenTree([text[-1]]), len(text) - self.cache.length, self.forwards
        pays = self._sizes is None or self._sizes.drafts(behind)
        if room >= 1 and pays:
            tree = self.grow(tree, rule, self._after_text(text, behind, int(rule.wide)), deepest=room)
        return Proposal(tree, self.forwards - before)

    def chosen(self, burst: Sequence[int]) -> None:
        """See `Proposer`."""
        if self._sizes:
            self._sizes.learn(burst)

    def commit(self, path: Sequence[int]) -> None:
        """See `Proposer`."""
        if self.cache.used > self.cache.length:
            self.cache.keep([self._rows[node] for node in takewhile(self._rows.__contains__, path)])
        self._rows = {}

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """See `Proposer`."""
        if self._sizes:
            self._sizes.timed(draft_s, verify_s, round_s)

    def catch_up(self, text: Sequence[int], count: int) -> Children:
        """Forwards what the cache lacks of `text`; returns the `count` best tokens after it."""
        logits = self._model.read(self.cache, text[self.cache.length :])
        self.forwards += 1
        return self._best(logits[None], [len(text)], count)[0]

    def catch_up_with_logits(self, text: Sequence[int], count: int, latest: int) -> list[Children]:
        """The same, but returns the `count` best tokens after each of the `latest` tokens at most that it lacked."""
        start = max(self.cache.length, len(text) - latest)
        if start > self.cache.length:
            self._model.read(self.cache, text[self.cache.length : start])
            self.forwards += 1
        positions = range(start, len(text))
        visible = np.tri(len(positions), dtype=np.bool_)
        logits = self._model.forward(self.cache, text[start:], positions, visible)
        self.cache.keep(positions)
        self.forwards += 1
        return self._best(logits, [position + 1 for position in positions], count)

    def grow(self, tree: TokenTree, rule: TreeRule[float], children: Children | None, deepest: int) -> TokenTree:
        """The tree that is to be verified, grown from one that holds its root alone.

        `children` are the best tokens after a root that belongs to the text; None: the root must be forwarded. The
        context has room for `deepest` levels. Sizes decide, after the rule, which nodes are worth their time.
        """
        self._rows, self._seen, budget = {}, {}, self._sizes
        n_max, widest = int(rule.n_max), int(rule.wide)
        level = [0]
        while level and tree.depths[level[0]] < deepest and (rule.best or len(tree) <= n_max):
            parents = _parents(tree, level if budget else _staying(tree, level, rule), rule)
            if budget and not children:
                parents = budget.worth_growing(parents)
            if not parents:
                break
            found = [children] if children else self._forward_level(tree, parents, widest)
            children = None
            level = []
            for parent, options in zip(parents, found, strict=True):
                width: int = breadth(rule, options.confidence)
                if budget:
                    budget.grown(parent, options.tokens, options.logprobs, width)
                room = width if rule.best else min(width, max(0, n_max + 1 - len(tree)))
                level += tree.grow(
                    parent, options.tokens[:room], options.logprobs[:room], options.draft_logprobs[:room]
                )
        if budget:
            return self._select(tree, budget.keep())
        return self._select(tree, tree.most_probable(n_max)) if rule.best else tree

    def _after_text(self, text: Sequence[int], behind: int, count: int) -> Children:
        """The best tokens after the text; after rounds without a draft, the sizes learn what it would have guessed."""
        if self._sizes is None or behind <= PROBED_FROM:
            return self.catch_up(text, count)
        *missed, last = self.catch_up_with_logits(text, count, PROBED_ROWS)
        self._sizes.probe_draft([(guess.tokens, guess.logprobs) for guess in missed], text[-len(missed) :])
        return last

    def _select(self, tree: TokenTree, kept: Sequence[int]) -> TokenTree:
        if len(kept) == len(tree):
            return tree
        self._rows = {new: self._rows[old] for new, old in enumerate(kept) if old in self._rows}
        return tree.subtree(kept)

    def _best(self, logits: Float[Tensor, "N W"], positions: Sequence[int], count: int) -> list[Children]:
        """The `count` best tokens for each of these positions, among the ids that both models know."""
        if logits.shape[1] != self._vocabulary:
            logits = logits[:, : self._vocabulary]
        if self._perturbation is None or self._perturbation.greedy_from(positions[0]):
            return best_children(logits, count)
        found = best_children(self._perturbation.chances(logits, positions), count)
        own = logits.log_softmax(-1, torch.float32).gather(
            -1, torch.tensor([each.tokens for each in found]).to(logits.device)
        )
        for children, logprobs in zip(found, own.tolist(), strict=True):
            children.draft_logprobs = logprobs
        return found

    def _forward_level(self, tree: TokenTree, nodes: Sequence[int], count: int) -> list[Children]:
        """Forwards these nodes, all of one level, and returns the `count` best tokens after each."""
        drafted = self.cache.used - self.cache.length
        if self.cache.used + len(nodes) > self._capacity:
            self.reserve(self.cache.used + len(nodes) + MORE_ROWS)
        for index, node in enumerate(nodes):
            self._rows[node] = self.cache.used + index
            self._seen[node] = [*self._seen.get(tree.parents[node], ()), drafted + index]
        visible = visibility([self._seen[node] for node in nodes], drafted + len(nodes))
        # A root that belongs to the text is its last committed row.
        root = self.cache.length - (0 not in self._rows)
        positions = [root + tree.depths[node] for node in nodes]
        logits = self._model.forward(self.cache, [tree.tokens[node] for node in nodes], positions, visible)
        self.forwards += 1
        return self._best(logits, [position + 1 for position in positions], count)


def _staying(tree: TokenTree, level: list[int], rule: TreeRule[float]) -> list[int]:
    """The nodes of a level that may stay: where the best are chosen, none beyond `n_max` can come back in later."""
    if not rule.best or len(tree) - 1 <= rule.n_max:
        return level
    return [node for node in tree.most_probable(int(rule.n_max)) if node >= level[0]]


def _parents(tree: TokenTree, level: Sequence[int], rule: TreeRule[float]) -> list[int]:
    """The nodes of a level that the rule gives children."""
    if rule.best and len(level) > rule.n_max:
        level = sorted(sorted(level, key=lambda node: -tree.path_logprobs[node])[: int(rule.n_max)])
    least = least_probability(rule, tree.depths[level[0]]) if level else math.inf
    return [node for node in level if tree.path_probability(node) >= least]


def best_children(logits: Float[Tensor, "N V"], count: int) -> list[Children]:
    """The `count` most probable tokens of each row, ties by the lower id; probabilities in float32."""
    logprobs = logits.log_softmax(-1, torch.float32)
    best = _best_on_cpu if logprobs.device.type == "cpu" else _best_on_device
    tokens, values = best(logprobs, min(count, logprobs.shape[-1]))
    return [Children(ids, scores) for ids, scores in zip(tokens, values, strict=True)]


def _best_on_cpu(logprobs: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    tokens, values = [], []
    for left in logprobs.numpy():
        best, scores = [], []
        for _ in range(count):
            # On a few thousand numbers, numpy's argmax costs a tenth of torch's, and of a sort; it takes the first of
            # equals.
            token = int(left.argmax())
            best.append(token)
            scores.append(float(left[token]))
            left[token] = -np.inf
        tokens.append(best)
        values.append(scores)
    return tokens, values


def _best_on_device(logprobs: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    tokens, values = [], []
    for _ in range(count):
        # argmax takes the first of equal values, which topk does not promise.
        best = logprobs.argmax(-1, keepdim=True)
        tokens.append(best)
        values.append(logprobs.gather(-1, best))
        logprobs = logprobs.scatter(-1, best, -torch.inf)
    ids, scores = torch.stack([torch.cat(tokens, -1).double(), torch.cat(values, -1).double()]).tolist()
    return [[int(token) for token in row] for row in ids], scores
