"""Cache of a model whose layers all attend to cached keys and values: paths share rows, and rows can be dropped."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decoder.forward.llama_cpp.cache import Contexts, LlamaCache
from decoder.forward.llama_cpp.context import MOST_ROWS, Context
from decoder.forward.llama_cpp.sequences import Sequences

SEQUENCES = 64
"""Number of sequences of a context; paths beyond this number are computed in further passes."""


class RowCache(LlamaCache):
    """A cache of keys and values."""

    def __init__(self, contexts: Contexts, layers: int, capacity: int) -> None:
        super().__init__(contexts, layers, capacity)
        self._sequences = Sequences(SEQUENCES, MOST_ROWS)

    @property
    def _drafted(self) -> Sequences:
        return self._sequences

    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """See `LlamaCache`."""
        self.cut(self.length)
        self._make_room(len(tokens))
        logits = self._append(tokens, self.length)
        self._restart(self.length + len(tokens))
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """See `KvCache`; the rows must be a path that begins at the text."""
        drafted, path = self._sequences, self._path(rows)
        cached = [row for row in path if row in drafted.holders]
        lost = [drafted.rows[row].token for row in path[len(cached) :]]
        end = self.length + len(cached)
        if drafted.in_use:
            context, kept = self._context, drafted.holders[cached[-1]] if cached else 0
            if drafted.branches:
                context.keep_only(kept)
            context.drop(kept, end)
            if kept:
                context.copy(kept, 0)
                context.keep_only(0)
        self._restart(end)
        if lost:
            self.read(lost)

    def cut(self, length: int) -> None:
        """See `KvCache`."""
        if self._sequences.in_use or length < self.length:
            if self._sequences.branches:
                self._context.keep_only(0)
            self._context.drop(0, min(length, self.length))
        self._restart(min(length, self.length))

    def _move(self, small: Context, large: Context) -> None:
        large.restore(small.state())
