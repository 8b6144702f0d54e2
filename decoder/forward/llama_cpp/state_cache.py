"""Cache of a model with states in llama.cpp: passes over drafted rows do not change the text's state, since a state
cannot go back.

Sequence 0 holds the text's state, and each draft path continues a copy of it (see `paths`). When a path is kept, the
sequence that holds the longest beginning of this path replaces sequence 0. The remaining tokens of the path are
pending: they are computed at the beginning of the next text or chain, or in a pass of their own before any other draft.
When a text is cut, its state is computed from the snapshot: a copy of an earlier state of the text.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decoder.forward.llama_cpp.cache import Contexts, LlamaCache
from decoder.forward.llama_cpp.context import MOST_ROWS, Context
from decoder.forward.llama_cpp.drafted import TEXT
from decoder.forward.llama_cpp.paths import STATES, Paths

SNAPSHOT = STATES - 1
"""Number of the sequence that holds the snapshot, a copy of an earlier state of the text."""
MOST_PENDING = 16
"""Largest number of pending tokens (committed, but not yet in the text's state) that are computed in the same pass as a
drafted chain, which saves a pass.
"""


class StateCache(LlamaCache):
    """A cache of states, and of the keys and values of layers that attend."""

    def __init__(self, contexts: Contexts, layers: int, capacity: int) -> None:
        super().__init__(contexts, layers, capacity)
        self._paths = Paths(SNAPSHOT - 1, MOST_ROWS)
        self._text: list[int] = []
        """Tokens of the text."""
        self._computed = 0
        """Number of tokens at the beginning of the text that the state in sequence 0 covers; all later tokens are
        pending.
        """
        self._in_snapshot = 0
        """Number of tokens at the beginning of the text that the snapshot covers; 0 if there is no snapshot."""

    @property
    def _drafted(self) -> Paths:
        return self._paths

    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """See `LlamaCache`."""
        self._drop_drafts()
        self._make_room(len(tokens))
        self._text += tokens
        self._restart(len(self._text))
        return self._settle()

    def keep(self, rows: Sequence[int]) -> None:
        """See `KvCache`; the rows must be a path that begins at the text."""
        pending = range(self._paths.length, self.length)
        path = self._path([*pending, *rows])
        count, sequence = self._paths.holder(path)
        if count:
            # The sequence begins with the text's keys and values, so the whole sequence, its state included, replaces
            # sequence 0.
            self._context.copy(sequence, 0)
            self._computed = self._paths.length + count
        self._text += [self._paths.rows[row].token for row in path[len(pending) :]]
        self._drop_drafts()
        self._restart(len(self._text))

    def cut(self, length: int) -> None:
        """See `KvCache`; computes a part of the text again if sequence 0 holds the state of a longer text."""
        self._drop_drafts()
        del self._text[length:]
        self._restart(len(self._text))
        if self._computed > length:
            self._go_back()

    def _begin(self, visible: NDArray[np.bool_]) -> NDArray[np.bool_]:
        pending, known = self._text[self._computed :], self._computed
        if not self._paths.rows and 0 < len(pending) <= MOST_PENDING and _is_chain(visible):
            self._paths.restart(known)
            self._paths.add(pending, range(known, self.length), range(TEXT, TEXT + len(pending)))
        return np.pad(visible, ((0, 0), (self.length - self._paths.length, 0)), constant_values=True)

    def _get_ready(self) -> None:
        self._settle()

    def _settle(self) -> NDArray[np.float32]:
        """Computes the pending tokens that are not drafted rows of `_paths`; returns the logits after the last one,
        shape (V,).
        """
        pending = self._text[self._computed : self._paths.length]
        logits = self._append(pending, self._computed)
        self._computed += len(pending)
        return logits

    def _go_back(self) -> None:
        """Computes the state after the shortened text, and takes a new snapshot. The computation begins with the old
        snapshot, unless the snapshot covers more tokens than the shortened text has.

        A text that was cut is usually cut again soon, and then only the tokens after the snapshot are read.
        """
        context = self._context
        context.drop(0)
        self._computed = self._in_snapshot if self._in_snapshot <= len(self._text) else 0
        if self._computed:
            context.copy(SNAPSHOT, 0)
        self._settle()
        context.drop(SNAPSHOT)
        if self._text:
            context.copy(0, SNAPSHOT)
        self._in_snapshot = len(self._text)

    def _drop_drafts(self) -> None:
        for sequence in self._paths.ends:
            self._context.drop(sequence)
        self._paths.forget()

    def _move(self, small: Context, large: Context) -> None:  # noqa: ARG002 - the whole text is computed again
        self._paths.forget()
        self._computed = self._in_snapshot = 0


def _is_chain(visible: NDArray[np.bool_]) -> bool:
    """Whether new rows follow the text one after the other, according to the mask that `Forward.forward` takes."""
    count = len(visible)
    return np.array_equal(visible[:, visible.shape[1] - count :], np.tri(count, dtype=np.bool_))
