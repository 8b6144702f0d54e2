"""Forward passes of a few sizes that agree: fewer rows are padded, more go in parts.

How a matrix is multiplied depends on its number of rows, and with it the last digits of every row. Knows neither how
sizes are found nor what attention does; trees are rows to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward


@dataclass(frozen=True)
class Exact:
    """A `Forward` whose passes have one of a few sizes."""

    inner: Forward
    sizes: tuple[int, ...]
    """Numbers of rows, rising; a row has the same bits in a pass of each."""

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return self.inner.new_cache(capacity + self.sizes[-1])

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        first, before = cache.used, visible.shape[1] - len(tokens)
        logits = []
        for start, stop, size in parts(len(tokens), self.sizes):
            padding, rows = size - (stop - start), slice(start, stop)
            if padding:
                self._make_room(cache, first + start + size)
            found = self.inner.forward(
                cache,
                [*tokens[rows], *[tokens[stop - 1]] * padding],
                [*positions[rows], *[positions[stop - 1]] * padding],
                padded(visible[rows, : before + stop], padding),
            )
            logits.append(found[: stop - start])
            # What the padding has left is overwritten by the next rows.
            cache.used = first + stop
        return torch.cat(logits) if len(logits) > 1 else logits[0]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`; all methods read a prompt in the same parts, so these need no care."""
        return self.inner.read(cache, tokens)

    def _make_room(self, cache: KvCache, rows: int) -> None:
        """In steps: a cache that grew row by row would be copied row by row."""
        cache.reserve(-(-rows // self.sizes[-1]) * self.sizes[-1])


def parts(rows: int, sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Where each part of a pass begins and ends, and the size that it is padded to."""
    for start in range(0, rows, sizes[-1]):
        stop = min(rows, start + sizes[-1])
        yield start, stop, next(size for size in sizes if size >= stop - start)


def padded(visible: NDArray[np.bool_], padding: int) -> NDArray[np.bool_]:
    """The same with further rows, which see themselves and which no other sees."""
    rows, recent = visible.shape
    wider = np.zeros((rows + padding, recent + padding), dtype=np.bool_)
    wider[:rows, :recent] = visible
    wider[rows:, recent:] = np.eye(padding, dtype=np.bool_)
    return wider
