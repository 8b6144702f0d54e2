"""Cache of a model with states: passes leave the text's state alone, and a state that is lost is computed again.

Sequence 0 holds the text's state, and each draft path has a copy that goes on (see `paths`). A path that is kept
replaces the text's state where its sequence ends with it. Else its tokens are owed: the next text that is read begins
with them, or the next chain, and before any other draft they are read. A text that is cut begins again at the mark: a
copy of the state after some first tokens.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decoder.forward.llama_cpp.cache import Contexts, LlamaCache
from decoder.forward.llama_cpp.context import MOST_ROWS, Context
from decoder.forward.llama_cpp.drafted import TEXT
from decoder.forward.llama_cpp.paths import STATES, Paths

MARK = STATES - 1
"""Number of the sequence of the mark."""
MOST_OWED = 16
"""Most tokens that are owed and computed again at the beginning of a chain, where they would else take a pass."""


class StateCache(LlamaCache):
    """A cache of states, and of keys and values where some layers attend to them."""

    def __init__(self, contexts: Contexts, layers: int, capacity: int) -> None:
        super().__init__(contexts, layers, capacity)
        self._paths = Paths(MARK - 1, MOST_ROWS)
        self._text: list[int] = []
        """Tokens of the text."""
        self._known = 0
        """Number of the text's first tokens that sequence 0 holds; the others are owed."""
        self._marked = 0
        """Number of the text's first tokens that the sequence of the mark holds; 0 if it is empty."""

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
        owed = range(self._paths.length, self.length)
        path = self._path([*owed, *rows])
        count, sequence = self._paths.holder(path)
        if count:
            # Its first rows of keys and values are those of the text, and its state replaces the text's.
            self._context.copy(sequence, 0)
            self._known = self._paths.length + count
        self._text += [self._paths.rows[row].token for row in path[len(owed) :]]
        self._drop_drafts()
        self._restart(len(self._text))

    def cut(self, length: int) -> None:
        """See `KvCache`; computes a part of the text again if it must."""
        self._drop_drafts()
        del self._text[length:]
        self._restart(len(self._text))
        if self._known > length:
            self._go_back()

    def _begin(self, visible: NDArray[np.bool_]) -> NDArray[np.bool_]:
        owed, known = self._text[self._known :], self._known
        if not self._paths.rows and 0 < len(owed) <= MOST_OWED and _is_chain(visible):
            self._paths.restart(known)
            self._paths.add(owed, range(known, self.length), range(TEXT, TEXT + len(owed)))
        return np.pad(visible, ((0, 0), (self.length - self._paths.length, 0)), constant_values=True)

    def _get_ready(self) -> None:
        self._settle()

    def _settle(self) -> NDArray[np.float32]:
        """Reads the tokens that are owed, but for those in the paths; logits after the last one, shape (V,)."""
        owed = self._text[self._known : self._paths.length]
        logits = self._append(owed, self._known)
        self._known += len(owed)
        return logits

    def _go_back(self) -> None:
        """Brings sequence 0 back to the text, from the mark or from the beginning; moves the mark to the text's end.

        Whoever cuts a text does it again a little later, so that few tokens are read from the mark on.
        """
        context = self._context
        context.drop(0)
        self._known = self._marked if self._marked <= len(self._text) else 0
        if self._known:
            context.copy(MARK, 0)
        self._settle()
        context.drop(MARK)
        if self._text:
            context.copy(0, MARK)
        self._marked = len(self._text)

    def _drop_drafts(self) -> None:
        for sequence in self._paths.ends:
            self._context.drop(sequence)
        self._paths.forget()

    def _move(self, small: Context, large: Context) -> None:  # noqa: ARG002 - all is computed again
        self._paths.forget()
        self._known = self._marked = 0


def _is_chain(visible: NDArray[np.bool_]) -> bool:
    """Whether new rows follow the text one after the other, by the mask that `Forward.forward` takes."""
    count = len(visible)
    return np.array_equal(visible[:, visible.shape[1] - count :], np.tri(count, dtype=np.bool_))
