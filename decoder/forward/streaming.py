"""StreamingLLM's cache: attention sinks and a sliding window, with positions counted within the cache (Xiao et al.,
"Efficient Streaming Language Models with Attention Sinks", section 3.2). Each token attends to the first `sinks` and to
the latest `window` tokens, itself included, regardless of the other rows of its pass. With RoPE, a score depends only
on the distance of two positions. So keys within the window keep the rotation of their position in the text, and only
the sinks are rotated further: for each row, by the number of tokens that left its window.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.errors import PairError
from decoder.forward.kv_cache import KvCache
from decoder.forward.linear import HALF
from decoder.forward.protocol import Forward, Ints, Mask

SLACK = 64
"""Step in rows by which the cache grows, and least number of rows dropped at once: each drop moves all later rows."""
READ_AT_ONCE = 64
"""Token limit per pass once a text exceeds the window, since each token then needs its own copy of the sinks."""
TRIED_TOKENS, FAR = (1, 2, 3), 1000
"""Token ids whose keys are compared at two positions, and the distance of these positions if the context allows it."""


@dataclass(frozen=True)
class KeyRotation:
    frequencies: Float[Tensor, "R"]
    """RoPE frequencies in radians per position, one for each pair of dimensions; on the host."""
    first: slice
    second: slice
    """`first` and `second` index the first and the second dimension of all pairs."""

    def __call__(self, keys: Float[Tensor, "L H S D"], by: Sequence[int]) -> Float[Tensor, "L H BS D"]:
        """B copies of all keys, concatenated; copy i is rotated by `by[i]` positions."""
        wide = torch.promote_types(keys.dtype, torch.float32)
        angles = torch.tensor(by, dtype=torch.float64)[:, None, None] * self.frequencies.double()
        cosine, sine = (part.to(keys.device, wide) for part in (angles.cos(), angles.sin()))
        rotated = keys[:, :, None].to(wide).repeat(1, 1, len(by), 1, 1)
        one, other = rotated[..., self.first].clone(), rotated[..., self.second].clone()
        rotated[..., self.first] = one * cosine - other * sine
        rotated[..., self.second] = one * sine + other * cosine
        return rotated.flatten(2, 3)


@torch.inference_mode()
def key_rotation(
    forward: Forward, frequencies: Float[Tensor, "R"], context: int, dtype: torch.dtype
) -> KeyRotation | None:
    """Finds by trial how a model rotates its keys; None if a layer does not rotate them by these frequencies. Raises
    PairError if layers differ in the shape of their keys and values, or have attention windows.
    """
    far, count = min(FAR, context - len(TRIED_TOKENS)), len(frequencies)
    near, there = _keys(forward, 0), _keys(forward, far)
    halves, neighbours = ((slice(0, count), slice(count, 2 * count)), (slice(0, 2 * count, 2), slice(1, 2 * count, 2)))
    candidates = (KeyRotation(frequencies.cpu(), *pair) for pair in (halves, neighbours))
    allowed = (0.1 if dtype in HALF else 1e-3) * _largest(there)
    return next((turn for turn in candidates if bool((_largest(turn(near, [far]) - there) <= allowed).all())), None)


def _largest(keys: Float[Tensor, "L H S D"]) -> Float[Tensor, "L"]:
    return keys.abs().flatten(1).amax(1)


def _keys(forward: Forward, start: int) -> Float[Tensor, "L H S D"]:
    rows = len(TRIED_TOKENS)
    cache = forward.new_cache(rows)
    forward.forward(cache, TRIED_TOKENS, range(start, start + rows), np.tri(rows, dtype=np.bool_))
    if cache.parts or cache.positions is not None:
        raise PairError(
            "streaming does not support layers with attention windows, or with keys and values of different shapes; "
            "leave out streaming, or choose models of another family"
        )
    return cache.store[:, 0, :, :rows]


class RollingCache(KvCache):
    """Stores only the sinks and the latest rows; `length`, `used` and row indices count the dropped rows too."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], sinks: int, window: int) -> None:
        super().__init__(store)
        self.gone = 0
        """Number of dropped rows, all of them directly after the sinks."""
        self._sinks, self._window = sinks, window

    @property
    def rows(self) -> int:
        return self.used - self.gone

    @contextmanager
    def held(self) -> Iterator[KvCache]:
        """A `KvCache` of only the stored rows, whose changes are applied to this cache when the context ends."""
        stored = KvCache(self.store)
        stored.length, stored.used = self.length - self.gone, self.rows
        yield stored
        self.store = stored.store
        self.length, self.used = stored.length + self.gone, stored.used + self.gone

    def keep(self, rows: Sequence[int]) -> None:
        with self.held() as stored:
            stored.keep([row - self.gone for row in rows])
            excess = stored.length - self._sinks - self._window
            if excess >= SLACK:
                stored.drop(self._sinks, excess)
                self.gone += excess

    def reserve(self, capacity: int) -> None:
        with self.held() as stored:
            stored.reserve(min(capacity, self._sinks + self._window + SLACK))


@dataclass(eq=False)
class Streaming(Forward):
    """A form with attention sinks and a sliding window, which must be longer than any path of drafted rows."""

    inner: Forward
    rotate: KeyRotation
    sinks: int
    window: int

    def new_cache(self, capacity: int) -> KvCache:
        most = self.sinks + self.window + SLACK
        return RollingCache(self.inner.new_cache(min(capacity, most)).store, self.sinks, self.window)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        if max(positions) >= cache.length + self.window:
            raise ValueError(f"{max(positions) - cache.length + 1} rows on a path exceed the window of {self.window}")
        lost = [max(0, position + 1 - self.sinks - self.window) for position in positions]
        rolling = cast("RollingCache", cache)
        with rolling.held() as stored:
            if not any(lost):
                _make_room(stored, len(tokens))
                return self.inner.forward(stored, tokens, positions, visible)
            shifts = sorted(set(lost))
            own_sinks = np.repeat(np.equal.outer(lost, shifts), self.sinks, axis=1)
            seen, first = self._seen(stored, rolling.gone, positions, visible), stored.used
            seen = np.concatenate([seen[:, :first], own_sinks, seen[:, first:]], 1)
            _make_room(stored, own_sinks.shape[1] + len(tokens))
            self._append_sinks(stored, shifts)
            logits = self.inner.forward(stored, tokens, positions, seen)
            stored.drop(first, own_sinks.shape[1])
            return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        if cache.length + len(tokens) <= self.sinks + self.window:
            with cast("RollingCache", cache).held() as stored:
                _make_room(stored, len(tokens))
                return self.inner.read(stored, tokens)
        count = min(len(tokens), READ_AT_ONCE, self.window)
        places = range(cache.length, cache.length + count)
        logits = self.forward(cache, tokens[:count], places, np.tri(count, dtype=np.bool_))[-1]
        cache.keep(places)
        return self.read(cache, tokens[count:]) if count < len(tokens) else logits

    def _seen(
        self, stored: KvCache, gone: int, positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Mask of stored and new rows; hides rows outside the window, and the sinks, of which each row reads a copy."""
        seen = np.ones((len(positions), stored.used + len(positions)), dtype=np.bool_)
        seen[:, seen.shape[1] - visible.shape[1] :] = visible
        seen[:, : self.sinks] = False
        places = np.arange(self.sinks, stored.length) + gone
        seen[:, self.sinks : stored.length] &= places > np.array(positions)[:, None] - self.window
        return seen

    def _append_sinks(self, stored: KvCache, shifts: Sequence[int]) -> None:
        """Appends a copy of the sinks for each entry of `shifts`, rotated by that many positions."""
        sinks = stored.store[..., : self.sinks, :]
        copies = stored.store.narrow(3, stored.used, len(shifts) * self.sinks)
        copies[:, 0] = self.rotate(sinks[:, 0], shifts)
        copies[:, 1] = sinks[:, 1].repeat(1, 1, len(shifts), 1)
        stored.used += copies.shape[3]


def _make_room(stored: KvCache, rows: int) -> None:
    """Reserves rows in multiples of `SLACK`, so that the cache is not copied for each row."""
    stored.reserve(-(-(stored.used + rows) // SLACK) * SLACK)
