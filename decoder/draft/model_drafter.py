"""A draft model as a proposer: it reads the unread end of the text, then grows a tree level by level.

This module knows nothing of the target. One forward pass computes the next-token distributions of a whole level
(DynaTree paper, section 3.1).
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.growth import Children, grow
from decoder.draft.proposer import Proposal, Proposer
from decoder.forward.compiled.library import best_tokens, in_rows, library
from decoder.forward.kv_cache import KvCache
from decoder.sampling.draft_probabilities import DraftProbabilities, Estimate
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, TreeRule


class Passes(Protocol):
    """Forward passes of a draft over one text; tokens and logits have the target's token ids."""

    cache: KvCache
    count: int
    """Number of forward passes so far, without prompt passes."""
    deepest: int
    """Largest number of levels that a tree can have."""

    def read(self, tokens: Sequence[int]) -> None:
        """Reads the prompt without its last token."""

    def reserve(self, rows: int) -> None:
        """Reserves cache rows for a text and a tree."""

    def behind(self, text: Sequence[int]) -> int:
        """Number of tokens at the end of the text that the draft has not read; 0 if the draft cannot draft yet."""

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        """Reads the unread tokens of the text; returns the logits after the last token."""

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Reads the unread tokens of the text; returns logits after the latest tokens, and the position that follows
        each of these tokens.

        Logits are returned for the last `latest` tokens, or for all unread tokens if there are fewer.
        """

    def begin_tree(self) -> None:
        """Forgets the nodes of the previous tree."""

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Forwards the nodes of one level, whose parents must have been read or forwarded before. Returns the logits
        after each node, and the position that follows the node.

        If all nodes have the same logits, a single row of logits and a single position may be returned.
        """

    def renumber(self, kept_nodes: Sequence[int]) -> None:
        """Renumbers the nodes after the tree was reduced to `kept_nodes`: a node's new number is its index in
        `kept_nodes`.
        """

    def commit(self, path: Sequence[int]) -> None:
        """Keeps the cache rows of committed nodes and drops the rows of all other nodes."""


class LevelDrafter(Proposer, Protocol):
    """A `Proposer` with a draft model. Instead of calling `propose`, a caller may also grow a tree itself, level by
    level.
    """

    @property
    def count(self) -> int:
        """Number of forward passes so far, without prompt passes."""

    @property
    def deepest(self) -> int:
        """Largest number of levels that the drafter can draft."""

    def behind(self, text: Sequence[int]) -> int:
        """Number of tokens at the end of the text that the draft has not read; 0 if the draft cannot draft yet."""

    def begin_tree(self) -> None:
        """Forgets the nodes of the previous tree."""

    def catch_up(self, text: Sequence[int], growth: Growth[float]) -> Children:
        """Reads the unread tokens of the text; returns the best tokens after the last token, up to the growth rule's
        largest breadth.
        """

    def catch_up_with_guesses(
        self, text: Sequence[int], growth: Growth[float], latest: int
    ) -> tuple[list[Children], list[int]]:
        """Like `catch_up`, but also returns guesses for tokens that the text already has.

        Returns the best tokens after each of the last unread tokens (at most `latest` tokens), and the text's
        own tokens at the guessed positions. The last guess is for the position after the text, which has no token yet.
        """

    def forward_level(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        """Forwards nodes of one level and returns the best tokens after each node; see `catch_up`."""

    def keep(self, tree: TokenTree, kept: Sequence[int]) -> TokenTree:
        """Reduces the tree to the nodes `kept`."""


def proposed(drafter: LevelDrafter, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
    """The proposal of a drafter whose trees are limited by the growth rule and the context, not by costs; see
    `Proposer.propose`.
    """
    tree, before = TokenTree([text[-1]]), drafter.count
    if room >= 1 and drafter.behind(text):
        first = drafter.catch_up(text, rule.growth)
        tree = grown(drafter, tree, rule, first, deepest=min(room, drafter.deepest))
    return Proposal(tree, drafter.count - before)


def grown(drafter: LevelDrafter, tree: TokenTree, rule: TreeRule, children: Children | None, deepest: int) -> TokenTree:
    """Grows a tree from its root and returns the subtree within the rule's budget.

    Args:
        drafter: Drafts the nodes.
        tree: A tree that has only its root.
        rule: The growth rule.
        children: Best tokens after the root, if the root was read with the text; None if the root must be forwarded.
        deepest: Maximum number of levels.
    """

    def source(tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        return [children] if children and nodes == [0] else drafter.forward_level(tree, nodes, growth)

    drafter.begin_tree()
    return drafter.keep(tree, grow(tree, rule, source, deepest))


class ModelDrafter:
    """A `Proposer` of one text that grows deterministic trees under a growth rule.

    Nodes are ranked by `DraftProbabilities`, or in greedy decoding by the draft's own probabilities, sharpened by the
    growth rule's exponent.
    """

    def __init__(self, passes: Passes, probabilities: DraftProbabilities | None = None) -> None:
        self.passes = passes
        self._probabilities = probabilities

    def read(self, tokens: Sequence[int]) -> None:
        self.passes.read(tokens)

    def reserve(self, rows: int) -> None:
        """See `Proposer`. If a tree needs more rows, the cache grows during drafting."""
        self.passes.reserve(rows)

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        return proposed(self, text, rule, room)

    def record_choices(self, burst: Sequence[int]) -> None:
        """See `Proposer`; does nothing, since this drafter does not learn."""

    def commit(self, path: Sequence[int]) -> None:
        self.passes.commit(path)

    def record_times(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """See `Proposer`; does nothing, since this drafter does not learn."""

    @property
    def count(self) -> int:
        return self.passes.count

    @property
    def deepest(self) -> int:
        return self.passes.deepest

    def behind(self, text: Sequence[int]) -> int:
        return self.passes.behind(text)

    def begin_tree(self) -> None:
        self.passes.begin_tree()

    def catch_up(self, text: Sequence[int], growth: Growth[float]) -> Children:
        return self._best(self.passes.after_text(text), [len(text)], growth)[0]

    def catch_up_with_guesses(
        self, text: Sequence[int], growth: Growth[float], latest: int
    ) -> tuple[list[Children], list[int]]:
        guesses = self._best(*self.passes.after_latest(text, latest), growth)
        return guesses, [*text[len(text) - len(guesses) + 1 :]]

    def grow(self, tree: TokenTree, rule: TreeRule, children: Children | None, deepest: int) -> TokenTree:
        return grown(self, tree, rule, children, deepest)

    def keep(self, tree: TokenTree, kept_nodes: Sequence[int]) -> TokenTree:
        """Reduces the tree to `kept_nodes`, and assigns the cache rows to the new numbers of the nodes."""
        if len(kept_nodes) == len(tree):
            return tree
        self.passes.renumber(kept_nodes)
        return tree.subtree(kept_nodes)

    def forward_level(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        """Forwards nodes of one level and returns the best tokens after each node; see `catch_up`."""
        best = self._best(*self.passes.after_level(tree, nodes), growth)
        return best * len(nodes) if len(best) == 1 else best

    def _best(self, logits: Float[Tensor, "N V"], positions: Sequence[int], growth: Growth[float]) -> list[Children]:
        """The best tokens of each row of logits; `positions` are the tokens' positions."""
        count = int(growth.wide)
        if self._probabilities is None or self._probabilities.greedy_from(positions[0]):
            sharpened = Estimate([growth.sharpness] * len(logits)) if growth.sharpness != 1 else None
            return best_children(logits, count, sharpened, own=sharpened is not None)
        estimate = self._probabilities.estimate(logits, positions)
        return best_children(logits, count, estimate, own=self._probabilities.noisy)


def best_children(
    logits: Float[Tensor, "N V"], count: int, estimate: Estimate | None = None, *, own: bool = False
) -> list[Children]:
    """The `count` most probable tokens of each row, with log-probabilities in float32; of equally probable tokens, the
    one with the lower id comes first.

    A token of probability 0 is no child, and a row with NaN or plus infinity, or without any possible token, has no
    children.

    Args:
        logits: The draft's logits.
        count: Largest number of children of a row.
        estimate: Turns the logits into estimated probabilities; None: they are the draft's own.
        own: Whether the children also hold the draft's own log-probabilities.
    """
    count = min(count, logits.shape[-1])
    if logits.device.type == "cpu" and (found := library()):
        offsets, factors = (estimate.offsets, estimate.factors) if estimate else (None, None)
        best = best_tokens(found, in_rows(logits), count, offsets, factors, own=own)
        return [_possible(Children(*each)) for each in zip(*best, strict=True)]
    logprobs = (estimate.scores(logits) if estimate else logits).log_softmax(-1, torch.float32)
    on_cpu = logprobs.device.type == "cpu"
    tokens, values = _best_on_cpu(logprobs, count) if on_cpu else _best_on_device(logprobs, count)
    children = [Children(ids, scores) for ids, scores in zip(tokens, values, strict=True)]
    if own:
        own_logprobs = logits.log_softmax(-1, torch.float32).gather(-1, torch.tensor(tokens).to(logprobs.device))
        for each, draft_logprobs in zip(children, own_logprobs.tolist(), strict=True):
            each.draft_logprobs = draft_logprobs
    return [_possible(each) for each in children]


def _possible(children: Children) -> Children:
    """The children without those of probability 0, which are the last ones; none if the first one's is not a number."""
    if math.isfinite(children.logprobs[-1]):
        return children
    if not math.isfinite(children.logprobs[0]):
        return Children([], [], lost=True)
    count = sum(map(math.isfinite, children.logprobs))
    return Children(children.tokens[:count], children.logprobs[:count], children.draft_logprobs[:count])


def _best_on_cpu(logprobs: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    tokens, values = [], []
    for left in logprobs.numpy():
        best, scores = [], []
        for _ in range(count):
            # For a few thousand numbers, numpy's argmax takes a tenth of the time of torch's argmax or of a sort. Of
            # equal values, numpy's argmax returns the lowest id.
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
        # Of equal values, argmax returns the lowest id; topk does not guarantee this.
        best = logprobs.argmax(-1, keepdim=True)
        tokens.append(best)
        values.append(logprobs.gather(-1, best))
        logprobs = logprobs.scatter(-1, best, -torch.inf)
    ids, scores = torch.stack([torch.cat(tokens, -1).double(), torch.cat(values, -1).double()]).tolist()
    return [[int(token) for token in row] for row in ids], scores
