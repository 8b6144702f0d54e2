"""Forward passes of a draft over one text and the draft trees after it: interface, and passes of a draft model."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import takewhile

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.growth import Expectation, Grown, TreeGrower
from decoder.forward.kv_cache import MORE_ROWS, KvCache
from decoder.forward.language_model import AT_ONCE, LanguageModel, fitted
from decoder.forward.protocol import Mask
from decoder.forward.token_choice import ranked
from decoder.sampling.ranking import Best, Ranking, RankingAt
from decoder.tree import TokenTree, visibility
from decoder.tree_rules import TreeRule


class Passes(ABC):
    """Forward passes of a draft over one text. Tokens and logits use the target's token ids."""

    cache: KvCache
    count = 0
    """Number of forward passes so far, except passes over the prompt."""
    deepest = sys.maxsize
    """Largest number of levels that a tree can have."""

    @abstractmethod
    def read(self, tokens: Sequence[int]) -> None:
        """Reads the prompt without its last token."""

    def reserve(self, rows: int) -> None:
        """Reserves cache rows for a text and a tree. If a tree is larger, the cache grows during drafting."""
        self.cache.reserve(rows)

    def behind(self, text: Sequence[int]) -> int:
        """Number of unread tokens at the end of the text; 0 if the draft cannot continue this text."""
        return len(text) - self.cache.length

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        """Reads the unread tokens of the text; returns the logits after the last token."""
        return self.after_latest(text, 1)[0]

    @abstractmethod
    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Reads the unread tokens of the text; returns the logits after each of the last `latest` tokens (or of the
        unread tokens, if fewer), and the position of each predicted token.
        """

    def begin_tree(self) -> None:
        """Forgets the nodes of the previous tree."""

    @abstractmethod
    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Forwards nodes of one level, whose parents have been read or forwarded. Returns the logits after each node,
        and the position of each predicted token; a single row and position if all nodes have the same logits.
        """

    def best_after_text(self, text: Sequence[int], ranking: Ranking) -> Best:
        """The best tokens by the logits of `after_text`."""
        return ranked(self.after_text(text), ranking)

    def best_after_level(self, tree: TokenTree, nodes: Sequence[int], ranking: RankingAt) -> Best:
        """The best tokens by the logits of `after_level`."""
        logits, positions = self.after_level(tree, nodes)
        return ranked(logits, ranking(positions))

    def grown(
        self,
        text: Sequence[int],
        rule: TreeRule,
        deepest: int,
        ranking: RankingAt,
        expectation: Expectation | None = None,
    ) -> Grown | None:
        """Reads the unread tokens of the text and grows a whole tree, as `TreeGrower.grow`; None if these passes
        can only be computed one by one.
        """
        del text, rule, deepest, ranking, expectation
        return None

    def renumber(self, kept_nodes: Sequence[int]) -> None:
        """Called after the tree was reduced to `kept_nodes`: a node's new number is its index in `kept_nodes`."""

    @abstractmethod
    def commit(self, path: Sequence[int]) -> None:
        """Keeps the cache rows of committed nodes and drops the rows of all other nodes."""


class DraftPasses(Passes):
    """Passes of a draft model. The KV cache is kept across rounds, so accepted nodes are not computed again."""

    def __init__(self, model: LanguageModel, vocabulary: int, capacity: int) -> None:
        self.cache = model.new_cache(capacity)
        self._capacity = capacity
        self._model = model
        self._fitted = fitted(model, vocabulary)
        self._rows: dict[int, int] = {}
        """Cache row of each node that was forwarded in this round."""
        self._visible_rows: dict[int, tuple[int, ...]] = {}
        """For each node, the rows of its ancestors and of itself, counted from the first row after the text."""

    def read(self, tokens: Sequence[int]) -> None:
        self._fitted.read(self.cache, tokens)

    def reserve(self, rows: int) -> None:
        self._capacity = max(self._capacity, rows)
        self.cache.reserve(rows)

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        logits = self._fitted.read(self.cache, text[self.cache.length :])
        self.count += 1
        return logits[None]

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        start = max(self.cache.length, len(text) - latest)
        if start > self.cache.length:
            self._fitted.read(self.cache, text[self.cache.length : start])
            self.count += 1
        positions = range(start, len(text))
        visible = np.tri(len(positions), dtype=np.bool_)
        logits = self._fitted.forward(self.cache, text[start:], positions, visible)
        self.cache.keep(positions)
        self.count += 1
        return logits, [position + 1 for position in positions]

    def again_after(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Like `after_latest`, but reads tokens again so that each of the last `latest` tokens has logits."""
        self.cache.cut(len(text) - latest)
        return self.after_latest(text, latest)

    @property
    def hidden(self) -> Float[Tensor, "N X"] | None:
        """Hidden rows of the latest pass, one per token; None if the model does not keep hidden rows."""
        return self._model.hidden

    def begin_tree(self) -> None:
        self._rows, self._visible_rows = {}, {}

    def best_after_text(self, text: Sequence[int], ranking: Ranking) -> Best:
        self.count += 1
        return self._fitted.best_after(self.cache, text[self.cache.length :], ranking)

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        tokens, positions, visible = self._level(tree, nodes)
        logits = self._fitted.forward(self.cache, tokens, positions, visible)
        return logits, [position + 1 for position in positions]

    def best_after_level(self, tree: TokenTree, nodes: Sequence[int], ranking: RankingAt) -> Best:
        tokens, positions, visible = self._level(tree, nodes)
        following = [position + 1 for position in positions]
        return self._fitted.best(self.cache, tokens, positions, visible, ranking(following))

    @cached_property
    def _grower(self) -> TreeGrower | None:
        return self._model.tree_grower(self.reserve) if self._fitted is self._model else None

    def grown(
        self,
        text: Sequence[int],
        rule: TreeRule,
        deepest: int,
        ranking: RankingAt,
        expectation: Expectation | None = None,
    ) -> Grown | None:
        unread = text[self.cache.length :]
        if self._grower is None or len(unread) > AT_ONCE:
            return None
        found = self._grower.grow(self.cache, unread, rule, deepest, ranking, expectation)
        if found:
            self._rows = found.rows
            self.count += 1 + len(found.calls)
        return found

    def _level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[list[int], list[int], Mask]:
        """Tokens, positions and mask of a pass over a level; reserves and records cache rows for the nodes."""
        drafted = self.cache.used - self.cache.length
        if self.cache.used + len(nodes) > self._capacity:
            self.reserve(self.cache.used + len(nodes) + MORE_ROWS)
        for index, node in enumerate(nodes):
            self._rows[node] = self.cache.used + index
            self._visible_rows[node] = (*self._visible_rows.get(tree.parents[node], ()), drafted + index)
        visible = _level_mask(tuple([self._visible_rows[node] for node in nodes]), drafted + len(nodes))
        self.count += 1
        # The root follows the cached text, unless it was read as the last token of the text.
        root = self.cache.length - (0 not in self._rows)
        return [tree.tokens[node] for node in nodes], [root + tree.depths[node] for node in nodes], visible

    def renumber(self, kept_nodes: Sequence[int]) -> None:
        self._rows = {new: self._rows[old] for new, old in enumerate(kept_nodes) if old in self._rows}

    def commit(self, path: Sequence[int]) -> None:
        if self.cache.used > self.cache.length:
            self.cache.keep([self._rows[node] for node in takewhile(self._rows.__contains__, path)])
        self._rows = {}


_level_mask = lru_cache(maxsize=256)(visibility)
"""Cached, since most levels have the same few masks, for example the levels of chains."""
