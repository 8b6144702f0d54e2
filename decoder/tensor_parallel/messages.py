"""Messages of the leader to its followers, as 64-bit integers, since pickling would take longer than a small pass.

A pass carries the complete state of its cache before it, so that operations on a cache need no messages of their own
and none can be forgotten. Knows neither processes nor models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.int64]
FRAME = 512
"""Words of the first tensor of every message; most passes need no second one."""
_WORD_BYTES = 8
_HEAD = 8
"""Numbers at the start of an encoded pass, its kind included."""


@dataclass(frozen=True)
class Begin:
    """Command to load the target."""

    dtype: int
    """Index into `decoder.system.device.DTYPES`."""


@dataclass(frozen=True)
class Peak:
    """Request for the peak memory use of every rank."""


@dataclass(frozen=True)
class Pass:
    """One forward pass, and the state of its cache before it."""

    cache: int
    """Number of the cache; a new number means an empty cache."""
    capacity: int
    """Rows that the cache has room for."""
    used: int
    """Rows in use before the pass, which appends its own."""
    moved: Sequence[tuple[int, int]]
    """Moved rows: (row now, row after the previous pass)."""
    gone: Sequence[int]
    """Numbers of caches to delete."""
    tokens: Sequence[int]
    positions: Sequence[int]
    visible: NDArray[np.bool_]
    """Shape (N, M); see `LanguageModel.forward`."""


Message: TypeAlias = Begin | Peak | Pass
_BEGIN, _PEAK, _PASS = range(3)


def encode(message: Message) -> Words:
    """Encodes a message as words."""
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


def decode(words: Words) -> Message:
    """Decodes a message; raises ValueError for words that are no message."""
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


def split_frame(words: Words) -> tuple[Words, Words]:
    """Splits a message into the frame, which begins with the number of words, and the words that did not fit."""
    frame = np.zeros(FRAME, dtype=np.int64)
    first = words[: FRAME - 1]
    frame[0] = len(words)
    frame[1 : 1 + len(first)] = first
    return frame, words[FRAME - 1 :]


def rest_length(frame: Words) -> int:
    """Number of words that follow a frame."""
    return max(0, int(frame[0]) - (FRAME - 1))


def join_frame(frame: Words, rest: Words) -> Words:
    """Joins a frame and the words that followed it to a message."""
    return np.concatenate([frame[1 : 1 + int(frame[0])], rest])


def _bits(visible: NDArray[np.bool_]) -> Words:
    packed = np.packbits(visible)
    return np.pad(packed, (0, -len(packed) % _WORD_BYTES)).view(np.int64)


def _visible(bits: Words, rows: int, columns: int) -> NDArray[np.bool_]:
    flat = np.unpackbits(bits.view(np.uint8), count=rows * columns)
    return flat.astype(np.bool_).reshape(rows, columns)
