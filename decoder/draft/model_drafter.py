"""A draft model as a proposer: it catches up with the text, then grows a tree level by level.

Knows nothing of the target. One forward pass brings the next-token distributions of a whole level (DynaTree paper,
section 3.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.proposer import Proposal
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.forward.kv_cache import KvCache
from decoder.sampling.chances import DraftChances
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule, breadth, least_probability

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


class Passes(Protocol):
    """Forward passes of what drafts, over one text; logits are over the ids that target and draft know."""

    cache: KvCache
    count: int
    """Passes so far, but for those over the prompt."""

    def read(self, tokens: Sequence[int]) -> None:
        """Takes in the prompt but for its last token."""

    def reserve(self, rows: int) -> None:
        """Makes room for a text and a tree."""

    def behind(self, text: Sequence[int]) -> int:
        """Rows of a text that were not read; 0 where there is nothing to guess from."""

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        """Reads what it lacks of a text; the logits after its last token."""

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """The same after each of the `latest` tokens at most that it lacked, and the positions of the next tokens."""

    def begin_tree(self) -> None:
        """Forgets the nodes of the tree before."""

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Forwards nodes of one level, whose parents were; logits after them, and the positions of the next tokens."""

    def renumber(self, kept: Sequence[int]) -> None:
        """Takes note that only these nodes stay, numbered in their order."""

    def commit(self, path: Sequence[int]) -> None:
        """Keeps what belongs to the nodes that became text, and drops the others."""


class ModelDrafter:
    """A `Proposer` of one text by passes over it; `sizes` decides how many nodes pay, without it the rule alone does.

    It guesses what the target chooses by what it takes for chances, or greedily.
    """

    def __init__(
        self, passes: Passes, sizes: TreeSizeController | None = None, chances: DraftChances | None = None
    ) -> None:
        self.passes = passes
        self._sizes = sizes
        self._chances = chances

    def read(self, tokens: Sequence[int]) -> None:
        """See `Proposer`."""
        self.passes.read(tokens)

    def reserve(self, rows: int) -> None:
        """See `Proposer`; a tree of which more is tried makes room itself."""
        self.passes.reserve(rows)

    def propose(self, text: Sequence[int], rule: TreeRule[float], room: int) -> Proposal:
        """See `Proposer`."""
        tree, behind, before = TokenTree([text[-1]]), self.passes.behind(text), self.passes.count
        pays = self._sizes is None or self._sizes.drafts(behind)
        if room >= 1 and behind and pays:
            tree = self.grow(tree, rule, self._after_text(text, behind, int(rule.wide)), deepest=room)
        return Proposal(tree, self.passes.count - before)

    def chosen(self, burst: Sequence[int]) -> None:
        """See `Proposer`."""
        if self._sizes:
            self._sizes.learn(burst)

    def commit(self, path: Sequence[int]) -> None:
        """See `Proposer`."""
        self.passes.commit(path)

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """See `Proposer`."""
        if self._sizes:
            self._sizes.timed(draft_s, verify_s, round_s)

    def catch_up(self, text: Sequence[int], count: int) -> Children:
        """Forwards what the cache lacks of `text`; returns the `count` best tokens after it."""
        return self._best(self.passes.after_text(text), [len(text)], count)[0]

    def catch_up_with_logits(self, text: Sequence[int], count: int, latest: int) -> list[Children]:
        """The same, but returns the `count` best tokens after each of the `latest` tokens at most that it lacked."""
        return self._best(*self.passes.after_latest(text, latest), count)

    def grow(self, tree: TokenTree, rule: TreeRule[float], children: Children | None, deepest: int) -> TokenTree:
        """The tree that is to be verified, grown from one that holds its root alone.

        `children` are the best tokens after a root that belongs to the text; None: the root must be forwarded. The
        context has room for `deepest` levels. Sizes decide, after the rule, which nodes are worth their time.
        """
        self.passes.begin_tree()
        budget = self._sizes
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
        self.passes.renumber(kept)
        return tree.subtree(kept)

    def _best(self, logits: Float[Tensor, "N V"], positions: Sequence[int], count: int) -> list[Children]:
        """The `count` best tokens for each of these positions."""
        if self._chances is None or self._chances.greedy_from(positions[0]):
            return best_children(logits, count)
        chances = self._chances.chances(logits, positions)
        return best_children(chances, count, logits if self._chances.noisy else None)

    def _forward_level(self, tree: TokenTree, nodes: Sequence[int], count: int) -> list[Children]:
        """Forwards these nodes, all of one level, and returns the `count` best tokens after each."""
        return self._best(*self.passes.after_level(tree, nodes), count)


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


def best_children(
    logits: Float[Tensor, "N V"], count: int, draft_logits: Float[Tensor, "N V"] | None = None
) -> list[Children]:
    """The `count` most probable tokens of each row, ties by the lower id; probabilities in float32.

    Where the draft's own logits are others, their probabilities of the same tokens come with them.
    """
    both = logits if draft_logits is None else torch.cat([logits.float(), draft_logits.float()])
    logprobs = both.log_softmax(-1, torch.float32)
    rows = logprobs[: len(logits)]
    best = _best_on_cpu if logprobs.device.type == "cpu" else _best_on_device
    tokens, values = best(rows, min(count, rows.shape[-1]))
    found = [Children(ids, scores) for ids, scores in zip(tokens, values, strict=True)]
    if draft_logits is not None:
        own = logprobs[len(logits) :].gather(-1, torch.tensor(tokens).to(logprobs.device))
        for children, draft_logprobs in zip(found, own.tolist(), strict=True):
            children.draft_logprobs = draft_logprobs
    return found


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
