"""Messages of the leader to its followers, as 64-bit integers: pickling would take longer than a small pass.

A pass is told with all that its cache must be before it, so that no operation on a cache is told by itself and none can
be forgotten. Knows neither processes nor models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.int64]
FRAME = 512
"""Words of the tensor that comes first, the same for every message; most passes fit."""
_WORD_BYTES = 8
_HEAD = 8
"""Numbers that a told pass begins with, its kind among them."""


@dataclass(frozen=True)
class Begin:
    """Load the target in this dtype, by its number in `decoder.device.DTYPES`."""

    dtype: int


@dataclass(frozen=True)
class Peak:
    """Tell the most memory in use so far."""


@dataclass(frozen=True)
class Pass:
    """One forward pass, and the cache that it finds."""

    cache: int
    """Number of the cache; one that was not named before is new and empty."""
    capacity: int
    """Rows that it has room for."""
    used: int
    """Rows that the pass finds; it appends its own."""
    moved: Sequence[tuple[int, int]]
    """(row of the cache, row after the previous pass that it was); rows that are not named are where they were."""
    gone: Sequence[int]
    """Caches that nobody needs any more."""
    tokens: Sequence[int]
    positions: Sequence[int]
    visible: NDArray[np.bool_]
    """Shape (N, M); see `LanguageModel.forward`."""


Message: TypeAlias = Begin | Peak | Pass
_BEGIN, _PEAK, _PASS = range(3)


def encoded(message: Message) -> Words:
    """A message as words."""
    match message:
        case Begin(dtype):
            return np.array([_BEGIN, dtype])
        case Peak():
            return np.array([_PEAK])
        case Pass():
            head = (_PASS, message.cache, message.capacity, message.used)
            counts = (len(message.moved), len(message.gone), *message.visible.shape)
            moved = [number for pair in message.moved for number in pair]
            lists = (*head, *counts, *moved, *message.gone, *message.tokens, *message.positions)
            return np.concatenate([np.array(lists), _bits(message.visible)])


def decoded(words: Words) -> Message:
    """The message that was encoded; raises ValueError for words of none."""
    kind, *rest = words.tolist()
    if kind == _BEGIN:
        return Begin(rest[0])
    if kind == _PEAK:
        return Peak()
    if kind != _PASS:
        raise ValueError(f"a message of kind {kind}, which there is not")
    cache, capacity, used, moves, gone, rows, columns = rest[: _HEAD - 1]
    numbers = iter(rest[_HEAD - 1 :])
    return Pass(
        cache,
        capacity,
        used,
        moved=[(next(numbers), next(numbers)) for _ in range(moves)],
        gone=[next(numbers) for _ in range(gone)],
        tokens=[next(numbers) for _ in range(rows)],
        positions=[next(numbers) for _ in range(rows)],
        visible=_visible(words[_HEAD + 2 * moves + gone + 2 * rows :], rows, columns),
    )


def framed(words: Words) -> tuple[Words, Words]:
    """The frame that is sent first, which begins with the number of words, and the words that did not fit."""
    frame = np.zeros(FRAME, dtype=np.int64)
    first = words[: FRAME - 1]
    frame[0] = len(words)
    frame[1 : 1 + len(first)] = first
    return frame, words[FRAME - 1 :]


def left_over(frame: Words) -> int:
    """How many words follow a frame."""
    return max(0, int(frame[0]) - (FRAME - 1))


def unframed(frame: Words, rest: Words) -> Words:
    """The words of a frame and of what followed it."""
    return np.concatenate([frame[1 : 1 + int(frame[0])], rest])


def _bits(visible: NDArray[np.bool_]) -> Words:
    packed = np.packbits(visible)
    return np.pad(packed, (0, -len(packed) % _WORD_BYTES)).view(np.int64)


def _visible(bits: Words, rows: int, columns: int) -> NDArray[np.bool_]:
    flat = np.unpackbits(bits.view(np.uint8), count=rows * columns)
    return flat.astype(np.bool_).reshape(rows, columns)
