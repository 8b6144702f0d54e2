"""Forward passes of a draft model: over one text, and level by level over the trees that grow on it.

Keeps its keys and values across rounds: a drafted node that was accepted is not computed again. Knows nothing of what
is made of its logits.
"""

from collections.abc import Sequence
from itertools import takewhile

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoder.forward.language_model import LanguageModel
from decoder.tree import TokenTree, visibility

MORE_ROWS = 1024
"""Room that is made at once: a cache that grew level by level would be copied level by level."""


class DraftPasses:
    """The draft's passes of one text; logits are over the ids that both models know."""

    def __init__(self, model: LanguageModel, vocabulary: int, capacity: int) -> None:
        self.cache = model.new_cache(capacity)
        self.count = 0
        """Passes so far, without those over the prompt."""
        self._capacity = capacity
        self._model = model
        self._vocabulary = vocabulary
        self._rows: dict[int, int] = {}
        """Cache row of each node that was forwarded in this round."""
        self._seen: dict[int, list[int]] = {}
        """Rows of a node and its ancestors, counted from the first row that does not belong to the text."""

    def read(self, tokens: Sequence[int]) -> None:
        """Takes in the prompt but for its last token."""
        self._model.read(self.cache, tokens)

    def reserve(self, rows: int) -> None:
        """Makes room for a text and a tree; a tree that needs more makes it itself."""
        self._capacity = max(self._capacity, rows)
        self.cache.reserve(rows)

    def behind(self, text: Sequence[int]) -> int:
        """Tokens of a text that it has not read."""
        return len(text) - self.cache.length

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        """Reads what it lacks of a text; the logits after its last token."""
        logits = self._model.read(self.cache, text[self.cache.length :])
        self.count += 1
        return self._known(logits[None])

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """The same after each of the `latest` tokens at most that it lacked, and the positions of the next tokens."""
        start = max(self.cache.length, len(text) - latest)
        if start > self.cache.length:
            self._model.read(self.cache, text[self.cache.length : start])
            self.count += 1
        positions = range(start, len(text))
        visible = np.tri(len(positions), dtype=np.bool_)
        logits = self._model.forward(self.cache, text[start:], positions, visible)
        self.cache.keep(positions)
        self.count += 1
        return self._known(logits), [position + 1 for position in positions]

    def again_after(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """The same after each of the `latest` tokens, those that it has read among them."""
        self.cache.cut(len(text) - latest)
        return self.after_latest(text, latest)

    @property
    def hidden(self) -> Float[Tensor, "N X"] | None:
        """Hidden rows of its latest pass; None where the model is not observed."""
        return self._model.hidden

    def begin_tree(self) -> None:
        """Forgets the nodes of the tree before."""
        self._rows, self._seen = {}, {}

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Forwards nodes of one level, whose parents were; logits after them, and the positions of the next tokens.

        A root that belongs to a text that was read is not forwarded.
        """
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
        self.count += 1
        return self._known(logits), [position + 1 for position in positions]

    def renumber(self, kept: Sequence[int]) -> None:
        """Takes note that only these nodes stay, numbered in their order."""
        self._rows = {new: self._rows[old] for new, old in enumerate(kept) if old in self._rows}

    def commit(self, path: Sequence[int]) -> None:
        """Keeps cache rows of the committed nodes and drops all others of the tree."""
        if self.cache.used > self.cache.length:
            self.cache.keep([self._rows[node] for node in takewhile(self._rows.__contains__, path)])
        self._rows = {}

    def _known(self, logits: Float[Tensor, "N W"]) -> Float[Tensor, "N V"]:
        return logits if logits.shape[1] == self._vocabulary else logits[:, : self._vocabulary]
