"""llama.cpp as a `Forward`: one pass verifies a tree, and a KV cache is a context of llama.cpp.

If all layers attend to cached keys and values, paths share rows, and rows can be dropped. A model with states has a
sequence for each path, since a state cannot be reset: sequence 0 has the text's state, and each draft path continues a
copy of this state. When a path is kept, the sequence that holds the longest prefix of this path replaces sequence 0.
The remaining tokens of the path are pending: they are computed at the beginning of the next text or chain, or in a pass
of their own before any other draft. When a text is cut, its state is computed from the snapshot, a copy of an earlier
state of the text. Logits are computed and returned in float32. Independent of files and tokenizers.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.llama_cpp.cache import Contexts, LlamaCache
from decoder.forward.llama_cpp.context import MOST_ROWS, Context, LlamaModel
from decoder.forward.llama_cpp.drafted import STATES, TEXT, Paths, Sequences
from decoder.forward.protocol import Forward, Ints, Mask

SEQUENCES = 64
"""Number of sequences of a model without states; if there are more paths, further passes compute them."""


class RowCache(LlamaCache):
    _drafted: Sequences

    def __init__(self, contexts: Contexts, layers: int, capacity: int) -> None:
        super().__init__(contexts, layers, capacity)
        self._drafted = Sequences(SEQUENCES, MOST_ROWS)

    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        self.cut(self.length)
        self._make_room(len(tokens))
        logits = self._append(tokens, self.length)
        self._restart(self.length + len(tokens))
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """The rows must be a path that begins at the text."""
        drafted, path = self._drafted, self._path(rows)
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
        if self._drafted.in_use or length < self.length:
            if self._drafted.branches:
                self._context.keep_only(0)
            self._context.drop(0, min(length, self.length))
        self._restart(min(length, self.length))

    def _move(self, small: Context, large: Context) -> None:
        large.restore(small.state())


SNAPSHOT = STATES - 1
"""Sequence of a copy of an earlier state of the text."""
MOST_PENDING = 16
"""Largest number of pending tokens that are computed in the same pass as a drafted chain."""


class LlamaStateCache(LlamaCache):
    """Cache of states, and of the keys and values of layers with attention."""

    _drafted: Paths

    def __init__(self, contexts: Contexts, layers: int, capacity: int) -> None:
        super().__init__(contexts, layers, capacity)
        self._drafted = Paths(SNAPSHOT - 1, MOST_ROWS)
        self._text: list[int] = []
        self._computed = 0
        """Number of leading tokens of the text that the state in sequence 0 covers; all later tokens are pending."""
        self._in_snapshot = 0
        """Number of leading tokens of the text that the snapshot covers; 0 without a snapshot."""

    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        self._drop_drafts()
        self._make_room(len(tokens))
        self._text += tokens
        self._restart(len(self._text))
        return self._settle()

    def keep(self, rows: Sequence[int]) -> None:
        """The rows must be a path that begins at the text."""
        pending = range(self._drafted.length, self.length)
        path = self._path([*pending, *rows])
        count, sequence = self._drafted.holder(path)
        if count:
            # The sequence begins with the text's keys and values, so the whole sequence, its state included, replaces
            # sequence 0.
            self._context.copy(sequence, 0)
            self._computed = self._drafted.length + count
        self._text += [self._drafted.rows[row].token for row in path[len(pending) :]]
        self._drop_drafts()
        self._restart(len(self._text))

    def cut(self, length: int) -> None:
        """Computes a part of the text again if sequence 0 holds the state of a longer text."""
        self._drop_drafts()
        del self._text[length:]
        self._restart(len(self._text))
        if self._computed > length:
            self._go_back()

    def _begin(self, visible: NDArray[np.bool_]) -> NDArray[np.bool_]:
        pending, known = self._text[self._computed :], self._computed
        if not self._drafted.rows and 0 < len(pending) <= MOST_PENDING and _is_chain(visible):
            self._drafted.restart(known)
            self._drafted.add(pending, range(known, self.length), range(TEXT, TEXT + len(pending)))
        return np.pad(visible, ((0, 0), (self.length - self._drafted.length, 0)), constant_values=True)

    def _get_ready(self) -> None:
        self._settle()

    def _settle(self) -> NDArray[np.float32]:
        """Computes the pending tokens that are not drafted rows; returns the logits after the last one, shape (V,)."""
        pending = self._text[self._computed : self._drafted.length]
        logits = self._append(pending, self._computed)
        self._computed += len(pending)
        return logits

    def _go_back(self) -> None:
        """Computes the state after the shortened text, from the old snapshot if this covers no more tokens; makes a new
        snapshot. A text is usually cut again soon, and then only the tokens after the snapshot are computed again.
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
        for sequence in self._drafted.ends:
            self._context.drop(sequence)
        self._drafted.forget()

    def _move(self, small: Context, large: Context) -> None:  # noqa: ARG002 - the whole text is computed again
        self._drafted.forget()
        self._computed = self._in_snapshot = 0


def _is_chain(visible: NDArray[np.bool_]) -> bool:
    """Whether the new rows form one path that begins at the text."""
    count = len(visible)
    return np.array_equal(visible[:, visible.shape[1] - count :], np.tri(count, dtype=np.bool_))


class LlamaForward(Forward):
    def __init__(self, model: LlamaModel, layers: int, device: torch.device, *, half: bool) -> None:
        """Keys and values are float16 if `half`."""
        self._contexts = Contexts(model, STATES if model.keeps_states else SEQUENCES, half=half)
        self._form = LlamaStateCache if model.keeps_states else RowCache
        self._layers, self._device = layers, device

    def new_cache(self, capacity: int) -> LlamaCache:
        return self._form(self._contexts, self._layers, capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        logits = _own(cache).compute(tokens, positions, visible)
        return torch.from_numpy(logits).to(self._device)

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return torch.from_numpy(_own(cache).read(tokens)).to(self._device)


def _own(cache: KvCache) -> LlamaCache:
    assert isinstance(cache, LlamaCache), "a forward form uses its own caches"  # noqa: S101 - a programmer's mistake
    return cache
