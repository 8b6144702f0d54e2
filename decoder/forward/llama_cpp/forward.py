"""llama.cpp as a `Forward`: one pass verifies a tree, and a KV cache is a context of llama.cpp.

If all layers attend to cached keys and values, paths share rows, and rows can be dropped. A model with states has a
sequence for each path, since a state cannot be reset: sequence 0 has the text's state, and each draft path continues a
copy of this state. When a path is kept, the sequence that holds the longest prefix of this path replaces sequence 0.
The remaining tokens of the path are pending: they are computed at the beginning of the next text or chain, or in a pass
of their own before any other draft. When a text is cut, its state is computed from the snapshot, a copy of an earlier
state of the text. Logits are computed and returned in float32. Independent of files and tokenizers.
"""

import weakref
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.llama_cpp.context import MOST_ROWS, Context, LlamaModel
from decoder.forward.llama_cpp.drafted import STATES, TEXT, DraftedRows, LlamaPass, Paths, Sequences
from decoder.forward.protocol import Forward, Ints, Mask

SPARE_ROWS = 256
"""Rows reserved beyond the requested capacity, so that a cache seldom grows, since growth copies the cache."""
IDLE = 2
TIMED_ROWS = 256
"""Largest number of tokens that are read as the text of a timed pass."""


class Contexts:
    """Pool of one model's contexts, which are reused: making one takes longer than a round of a small model."""

    def __init__(self, model: LlamaModel, sequences: int, *, half: bool) -> None:
        self._model, self._sequences, self._half = model, sequences, half
        self._idle: list[Context] = []

    def take(self, rows: int) -> Context:
        """An empty context for at least `rows` rows."""
        fitting = [context for context in self._idle if context.rows >= rows]
        if fitting:
            context = min(fitting, key=lambda each: each.rows)
            self._idle.remove(context)
            context.clear()
            return context
        return Context(self._model, rows, self._sequences, half=self._half, threads=torch.get_num_threads())

    def give_back(self, held: Sequence[Context]) -> None:
        self._idle = [*self._idle, *held][-IDLE:]


class LlamaCache(KvCache):
    """A cache in a context that the first pass takes from `Contexts`; the tensor of `KvCache` stays empty."""

    _drafted: DraftedRows

    def __init__(self, contexts: Contexts, layers: int, capacity: int) -> None:
        super().__init__(torch.zeros((layers, 2, 0, 0, 0)))
        self._contexts, self._capacity = contexts, capacity
        self._held: list[Context] = []
        """The current context; empty before the first pass."""
        weakref.finalize(self, contexts.give_back, self._held)

    @abstractmethod
    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Appends tokens to the committed text; returns the logits after the last one, shape (V,)."""

    @abstractmethod
    def _move(self, small: Context, large: Context) -> None:
        """Moves the cache to a larger, empty context; rows that are not copied must be computed again."""

    def _begin(self, visible: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Called before rows are drafted; adds columns to `visible` if tokens of the text become drafted rows."""
        return visible

    def _get_ready(self) -> None:
        """Called before drafted rows are computed."""

    @property
    def _context(self) -> Context:
        if not self._held:
            self._held.append(self._contexts.take(self._capacity + SPARE_ROWS))
        (context,) = self._held
        context.use_threads(torch.get_num_threads())
        return context

    def compute(
        self, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Logits of new drafted rows, shape (N, V)."""
        drafted = self._drafted
        new = drafted.add(tokens, positions, parents_of(self._begin(visible), drafted))
        self._make_room(0)
        self._get_ready()
        parts, order, awaited = list[NDArray[np.float32]](), list[int](), set(new)

        def run(step: LlamaPass) -> None:
            wanted = list[bool]()
            for row, _ in step.rows:
                wanted.append(row in awaited)
                awaited.discard(row)
            parts.append(self._run(step, wanted))
            order.extend(row for (row, _), asked in zip(step.rows, wanted, strict=True) if asked)

        drafted.steps(new, run)
        self.used = drafted.length + len(drafted.rows)
        logits: NDArray[np.float32] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return logits if order == new else logits[np.argsort(order)]

    def place(self, first: int, rows: Sequence[int]) -> None:
        raise ValueError(f"llama.cpp cannot move rows {list(rows)} to {first}")

    def reserve(self, capacity: int) -> None:
        self._capacity = max(self._capacity, capacity)
        self._make_room(0)

    def assume(self, length: int) -> None:
        """Commits at most `TIMED_ROWS` tokens, even if `length` is larger."""
        length = min(length, TIMED_ROWS)
        self.cut(length)
        if self.length < length:
            self.read([0] * (length - self.length))

    def _path(self, rows: Sequence[int]) -> list[int]:
        """Numbers of the drafted rows at these cache indices; raises ValueError if the rows do not form a path."""
        path = [row - self._drafted.length for row in rows]
        if path and self._drafted.above(path[-1]) != path:
            raise ValueError(f"rows {path} do not form a path from the text")
        return path

    def _append(self, tokens: Sequence[int], first: int) -> NDArray[np.float32]:
        """Computes tokens in sequence 0; returns the last token's logits, shape (V,)."""
        logits = np.zeros((1, 0), np.float32)
        for start in range(0, len(tokens), MOST_ROWS):
            part = tokens[start : start + MOST_ROWS]
            last = start + len(part) == len(tokens)
            positions = range(first + start, first + start + len(part))
            logits = self._context.decode(part, positions, [[0]] * len(part), [*[False] * (len(part) - 1), last])
        after: NDArray[np.float32] = logits[0]
        return after

    def _make_room(self, rows: int) -> None:
        """Moves to a larger context if the current one is too small for the capacity or `rows` more rows of text."""
        needed = max(self._capacity, self.length + self._drafted.cells + rows)
        self._capacity = needed
        if self._held and needed > self._held[0].rows:
            large = self._contexts.take(needed + SPARE_ROWS)
            self._move(self._held[0], large)
            self._held[:] = [large]

    def _restart(self, length: int) -> None:
        self._drafted.restart(length)
        self.length = self.used = length

    def _run(self, step: LlamaPass, wanted: Sequence[bool]) -> NDArray[np.float32]:
        """Logits of the step's wanted rows."""
        context, rows = self._context, self._drafted.rows
        if step.cut:
            context.drop(0, self.length)
        for sequence in step.dropped:
            context.drop(sequence)
        for copy in step.copies:
            context.copy(copy.source, copy.target, copy.end)
        return context.decode(
            [rows[row].token for row, _ in step.rows],
            [rows[row].position for row, _ in step.rows],
            [sequences for _, sequences in step.rows],
            wanted,
        )


def parents_of(visible: NDArray[np.bool_], drafted: DraftedRows) -> list[int]:
    """Parents of new rows, from `Forward.forward`'s mask. Raises ValueError unless each row attends to one path."""
    known, count = len(drafted.rows), len(visible)
    if visible.shape[1] < known + count or not visible[:, : visible.shape[1] - known - count].all():
        raise ValueError(f"a mask of {visible.shape[1]} columns does not fit {known} drafted and {count} new rows")
    parents, paths = list[int](), list[list[int]]()
    for row, seen in enumerate(visible[:, visible.shape[1] - known - count :], known):
        path = seen.nonzero()[0].tolist()
        parent = path[-2] if len(path) > 1 else TEXT
        earlier = parent < row and path[-1:] == [row]
        if not earlier or path[:-1] != (paths[parent - known] if parent >= known else drafted.above(parent)):
            raise ValueError(f"row {row} attends to rows {path}, which do not form a path")
        parents.append(parent)
        paths.append(path)
    return parents


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
        """Computes the state after the shortened text, from the old snapshot unless the snapshot covers more tokens
        than the text; makes a new snapshot. A text is usually cut again soon, and then only the tokens after the
        snapshot are computed again.
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
