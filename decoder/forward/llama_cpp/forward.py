"""llama.cpp as a `Forward`: one pass verifies a tree, and a KV cache is a context of llama.cpp.

Logits are computed and returned in float32. Knows neither files nor tokenizers.
"""

import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.llama_cpp.context import MOST_ROWS, SEQUENCES, Context, Model
from decoder.forward.llama_cpp.sequences import TEXT, Sequences, Step

SPARE_ROWS = 256
"""Rows reserved beyond the requested capacity, so that a cache seldom grows: growth copies it."""
IDLE = 2
"""Number of unused contexts that are kept for further texts."""
TIMED_ROWS = 256
"""Longest text that is read before a timed pass, in tokens; a longer text would take more time than it is worth."""


class LlamaForward:
    """A GGUF model as a `Forward`."""

    def __init__(self, model: Model, layers: int, device: torch.device, *, half: bool) -> None:
        """Wraps a model of `layers` layers; logits go to `device`. Keys and values are float16 if `half`."""
        self._contexts = _Contexts(model, half=half)
        self._layers, self._device = layers, device

    def new_cache(self, capacity: int) -> "LlamaCache":
        """See `Forward`."""
        return LlamaCache(self._contexts, self._layers, capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        logits = _own(cache).compute(tokens, positions, visible)
        return torch.from_numpy(logits).to(self._device)

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        return torch.from_numpy(_own(cache).read(tokens)).to(self._device)

    def plain(self, prompt_ids: Sequence[int], rows: int, vocabulary: int) -> Iterator[int]:
        """Greedy decoding by one-token passes alone, as a baseline; reads the prompt before it returns.

        Args:
            prompt_ids: Token ids of the prompt.
            rows: Number of rows of the prompt and of all new tokens.
            vocabulary: Number of token ids to choose from.
        """
        cache = self.new_cache(rows)
        if prompt_ids[:-1]:
            cache.read(prompt_ids[:-1])
        return cache.plain(prompt_ids[-1], vocabulary)


def _own(cache: KvCache) -> "LlamaCache":
    assert isinstance(cache, LlamaCache), "a forward form uses its own caches"  # noqa: S101 - a programmer's mistake
    return cache


class _Contexts:
    """Contexts of one model; unused ones are kept, since making one takes longer than a round of a small model."""

    def __init__(self, model: Model, *, half: bool) -> None:
        self._model, self._half = model, half
        self._idle: list[Context] = []

    def take(self, rows: int) -> Context:
        """An empty context with room for at least `rows` rows."""
        fitting = [context for context in self._idle if context.rows >= rows]
        if fitting:
            context = min(fitting, key=lambda each: each.rows)
            self._idle.remove(context)
            context.clear()
            return context
        return Context(self._model, rows, half=self._half, threads=torch.get_num_threads())

    def give_back(self, holder: "_Holder") -> None:
        """Takes back the context of a cache that is no longer used."""
        if holder.context:
            self._idle = [*self._idle, holder.context][-IDLE:]


class _Holder:
    """Holds the context of a cache, which may be replaced by a larger one."""

    context: Context | None = None


class LlamaCache(KvCache):
    """A KV cache in a context of llama.cpp, which is made at the first pass; the tensor of `KvCache` stays empty."""

    def __init__(self, contexts: _Contexts, layers: int, capacity: int) -> None:
        super().__init__(torch.zeros((layers, 2, 0, 0, 0)))
        self._contexts, self._capacity = contexts, capacity
        self._held = _Holder()
        weakref.finalize(self, contexts.give_back, self._held)
        self._sequences = Sequences(SEQUENCES, MOST_ROWS)

    @property
    def _context(self) -> Context:
        if self._held.context is None:
            self._held.context = self._contexts.take(self._capacity + SPARE_ROWS)
        self._held.context.use_threads(torch.get_num_threads())
        return self._held.context

    def compute(
        self, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Logits of new drafted rows, shape (N, V)."""
        drafted, parents = len(self._sequences.rows), parents_of(visible, self._sequences)
        self._make_room(len(tokens))
        new = self._sequences.add(tokens, positions, parents)
        parts, order = list[NDArray[np.float32]](), list[int]()

        def run(step: Step) -> None:
            parts.append(self._run(step, drafted))
            order.extend(row for row in step.rows if row >= drafted)

        self._sequences.steps(new, run)
        self.used = self.length + len(self._sequences.rows)
        logits: NDArray[np.float32] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return logits if order == new else logits[np.argsort(order)]

    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Appends and commits plain text; logits after its last token, shape (V,)."""
        self.cut(self.length)
        self._make_room(len(tokens))
        logits = np.zeros((0, 0), np.float32)
        for start in range(0, len(tokens), MOST_ROWS):
            part = tokens[start : start + MOST_ROWS]
            last = start + len(part) == len(tokens)
            positions = range(self.length, self.length + len(part))
            logits = self._context.decode(part, positions, [[0]] * len(part), [*[False] * (len(part) - 1), last])
            self._restart(self.length + len(part))
        after: NDArray[np.float32] = logits[0]
        return after

    def plain(self, token: int, vocabulary: int) -> Iterator[int]:
        """Yields the most probable token after the text and `token`, then the token after that, and so on endlessly."""
        context, position = self._context, self.length
        while True:
            logits = context.decode([token], [position], [[0]], [True])[0, :vocabulary]
            token, position = int(logits.argmax()), position + 1
            yield token

    def keep(self, rows: Sequence[int]) -> None:
        """See `KvCache`; the rows must be a path that begins at the text."""
        drafted = self._sequences
        path = [row - self.length for row in rows]
        if path and drafted.above(path[-1]) != path:
            raise ValueError(f"rows {path} are no path from the text")
        cached = [row for row in path if drafted.rows[row].sequence is not None]
        lost = [drafted.rows[row].token for row in path[len(cached) :]]
        end = self.length + len(cached)
        if drafted.in_use:
            context, kept = self._context, drafted.rows[cached[-1]].sequence if cached else 0
            assert kept is not None, "a cached row has a sequence"  # noqa: S101 - a programmer's mistake
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

    def place(self, first: int, rows: Sequence[int]) -> None:
        """Raises ValueError, since rows cannot be moved."""
        raise ValueError(f"llama.cpp cannot move rows {list(rows)} to {first}")

    def reserve(self, capacity: int) -> None:
        """See `KvCache`."""
        self._capacity = max(self._capacity, capacity)
        self._make_room(0)

    def assume(self, length: int) -> None:
        """See `KvCache`; a text longer than `TIMED_ROWS` is cut to that length."""
        length = min(length, TIMED_ROWS)
        self.cut(length)
        if self.length < length:
            self.read([0] * (length - self.length))

    def _make_room(self, rows: int) -> None:
        """Moves the cache to a larger context if its context is too small for its capacity or for `rows` more rows."""
        needed = max(self._capacity, self.used + rows)
        small = self._held.context
        if small is None or needed <= small.rows:
            self._capacity = needed
            return
        large = self._contexts.take(needed + SPARE_ROWS)
        large.restore(small.state())
        self._held.context, self._capacity = large, needed

    def _restart(self, length: int) -> None:
        self._sequences.restart(length)
        self.length = self.used = length

    def _run(self, step: Step, first_wanted: int) -> NDArray[np.float32]:
        """Runs one step; returns the logits of all rows of the step whose number is at least `first_wanted`."""
        context, rows = self._context, self._sequences.rows
        if step.cut:
            context.drop(0, self.length)
        for sequence in step.dropped:
            context.drop(sequence)
        for copy in step.copies:
            context.copy(copy.source, copy.target, copy.end)
        return context.decode(
            [rows[row].token for row in step.rows],
            [rows[row].position for row in step.rows],
            list(step.rows.values()),
            [row >= first_wanted for row in step.rows],
        )


def parents_of(visible: NDArray[np.bool_], sequences: Sequences) -> list[int]:
    """Parents of new rows, from the mask that `Forward.forward` takes; `TEXT` for a row that follows the text.

    Raises:
        ValueError: Some row attends to other rows than those of one path.
    """
    drafted, count = len(sequences.rows), len(visible)
    if visible.shape[1] < drafted + count or not visible[:, : visible.shape[1] - drafted - count].all():
        raise ValueError(f"a mask of {visible.shape[1]} columns for {drafted} drafted and {count} new rows")
    parents, paths = list[int](), list[list[int]]()
    for row, seen in enumerate(visible[:, visible.shape[1] - drafted - count :], drafted):
        path = seen.nonzero()[0].tolist()
        parent = path[-2] if len(path) > 1 else TEXT
        known = parent < row and path[-1:] == [row]
        if not known or path[:-1] != (paths[parent - drafted] if parent >= drafted else sequences.above(parent)):
            raise ValueError(f"row {row} attends to rows {path}, which are no path")
        parents.append(parent)
        paths.append(path)
    return parents
