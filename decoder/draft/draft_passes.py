"""Forward passes of a draft model over one text, and level by level over the draft trees at the end of the text.

The KV cache is kept across rounds: accepted drafted nodes are not computed again. This module does not know what the
logits are used for.
"""

import sys
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoder.forward.fitted import fitted
from decoder.forward.language_model import LanguageModel
from decoder.tree import TokenTree, visibility

MORE_ROWS = 1024
"""Number of rows that are added to a full KV cache. If only the rows of one level were added, each level would copy the
cache.
"""


class DraftPasses:
    """Forward passes of the draft over one text; tokens and logits have the target's token ids."""

    def __init__(self, model: LanguageModel, vocabulary: int, capacity: int) -> None:
        """`vocabulary` is the number of the target's token ids."""
        self.cache = model.new_cache(capacity)
        self.count = 0
        """Number of forward passes so far, without prompt passes."""
        self.deepest = sys.maxsize
        self._capacity = capacity
        self._model = model
        self._fitted = fitted(model, vocabulary)
        self._rows: dict[int, int] = {}
        """Cache row of each node that was forwarded in this round."""
        self._visible_rows: dict[int, list[int]] = {}
        """Cache rows of each node and its ancestors, counted from the first row after the text."""

    def read(self, tokens: Sequence[int]) -> None:
        """Reads the prompt without its last token."""
        self._fitted.read(self.cache, tokens)

    def reserve(self, rows: int) -> None:
        """Reserves cache rows for a text and a tree. If a tree needs more rows, the cache grows during drafting."""
        self._capacity = max(self._capacity, rows)
        self.cache.reserve(rows)

    def behind(self, text: Sequence[int]) -> int:
        """Number of tokens at the end of the text that the draft has not read."""
        return len(text) - self.cache.length

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        """Reads the unread tokens of the text; returns the logits after the last token."""
        logits = self._fitted.read(self.cache, text[self.cache.length :])
        self.count += 1
        return logits[None]

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Reads the unread tokens of the text; returns logits after the latest tokens, and the position that follows
        each of these tokens.

        Logits are returned for the last `latest` tokens, or for all unread tokens if there are fewer.
        """
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
        """Like `after_latest`, but returns logits for all of the last `latest` tokens. Tokens that were already read
        are read again.
        """
        self.cache.cut(len(text) - latest)
        return self.after_latest(text, latest)

    @property
    def hidden(self) -> Float[Tensor, "N X"] | None:
        """Hidden states of the latest pass, one row per token; None if the model does not keep hidden states."""
        return self._model.hidden

    def begin_tree(self) -> None:
        """Forgets the nodes of the previous tree."""
        self._rows, self._visible_rows = {}, {}

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Forwards the nodes of one level, whose parents must have been read or forwarded before. Returns the logits
        after each node, and the position that follows the node.

        The root is not forwarded if it was already read as the last token of the text.
        """
        drafted = self.cache.used - self.cache.length
        if self.cache.used + len(nodes) > self._capacity:
            self.reserve(self.cache.used + len(nodes) + MORE_ROWS)
        for index, node in enumerate(nodes):
            self._rows[node] = self.cache.used + index
            self._visible_rows[node] = [*self._visible_rows.get(tree.parents[node], ()), drafted + index]
        visible = visibility([self._visible_rows[node] for node in nodes], drafted + len(nodes))
        # The root follows the cached text, unless it was read as the last token of the text.
        root = self.cache.length - (0 not in self._rows)
        positions = [root + tree.depths[node] for node in nodes]
        logits = self._fitted.forward(self.cache, [tree.tokens[node] for node in nodes], positions, visible)
        self.count += 1
        return logits, [position + 1 for position in positions]

    def renumber(self, kept_nodes: Sequence[int]) -> None:
        """Renumbers the nodes after the tree was reduced to `kept_nodes`: a node's new number is its index in
        `kept_nodes`.
        """
        self._rows = {new: self._rows[old] for new, old in enumerate(kept_nodes) if old in self._rows}

    def commit(self, path: Sequence[int]) -> None:
        """Keeps the cache rows of committed nodes and drops the rows of all other nodes."""
        if self.cache.used > self.cache.length:
            self.cache.keep([self._rows[node] for node in takewhile(self._rows.__contains__, path)])
        self._rows = {}
