"""Base class of KV caches that are contexts of llama.cpp, for models with and without states, and their pool."""

import weakref
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from decoder.forward.kv_cache import KvCache
from decoder.forward.llama_cpp.context import MOST_ROWS, Context, LlamaModel
from decoder.forward.llama_cpp.drafted import TEXT, DraftedRows, LlamaPass

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
