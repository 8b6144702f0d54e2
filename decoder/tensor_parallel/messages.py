"""Messages of the leader to its followers, encoded as 64-bit integers: pickling would take longer than a small pass.

The message of a pass includes the complete state of its cache before the pass, so that operations on a cache need no
separate messages. Knows neither processes nor models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.int64]
FRAME = 512
"""Number of words in the first tensor of every message; most messages need no second tensor."""
_WORD_BYTES = 8
_HEAD = 8
"""Number of words in the header of an encoded pass, including the kind of the message."""


@dataclass(frozen=True)
class Begin:
    """Command to load the target in a dtype."""

    dtype: int
    """Index into `decoder.system.device.DTYPES`."""


@dataclass(frozen=True)
class Peak:
    """Request to every rank for its peak memory use."""


@dataclass(frozen=True)
class Pass:
    """Command to run one forward pass, with the state of its cache before the pass."""

    cache: int
    """Number of the cache; a new number means an empty cache."""
    capacity: int
    """Number of rows for which the cache has room."""
    used: int
    """Number of rows in use before the pass; the pass appends further rows."""
    moved: Sequence[tuple[int, int]]
    """Rows that were moved since the previous pass, as pairs (new index, old index)."""
    gone: Sequence[int]
    """Numbers of caches to delete."""
    tokens: Sequence[int]
    positions: Sequence[int]
    visible: NDArray[np.bool_]
    """Attention mask, shape (N, M); see `LanguageModel.forward`."""


Message: TypeAlias = Begin | Peak | Pass
_BEGIN, _PEAK, _PASS = range(3)


def encode(message: Message) -> Words:
    """Encodes a message as 64-bit words."""
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
    """Decodes a message from 64-bit words; raises ValueError for an unknown kind of message."""
    kind, *rest = words.tolist()
    if kind == _BEGIN:
        return Begin(rest[0])
    if kind == _PEAK:
        return Peak()
    if kind != _PASS:
        raise ValueError(f"unknown kind of message: {kind}")
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
    """Splits a message into a frame and the remaining words. The frame has a fixed size and begins with the message's
    length.
    """
    frame = np.zeros(FRAME, dtype=np.int64)
    first = words[: FRAME - 1]
    frame[0] = len(words)
    frame[1 : 1 + len(first)] = first
    return frame, words[FRAME - 1 :]


def rest_length(frame: Words) -> int:
    """Number of the message's words that did not fit in this frame."""
    return max(0, int(frame[0]) - (FRAME - 1))


def join_frame(frame: Words, rest: Words) -> Words:
    """Joins a frame and the remaining words into a message."""
    return np.concatenate([frame[1 : 1 + int(frame[0])], rest])


def _bits(visible: NDArray[np.bool_]) -> Words:
    packed = np.packbits(visible)
    return np.pad(packed, (0, -len(packed) % _WORD_BYTES)).view(np.int64)


def _visible(bits: Words, rows: int, columns: int) -> NDArray[np.bool_]:
    flat = np.unpackbits(bits.view(np.uint8), count=rows * columns)
    return flat.astype(np.bool_).reshape(rows, columns)
