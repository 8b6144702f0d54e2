"""A cache that the followers hold too, each with heads of its own: which of its rows moved, and how they follow.

Followers learn nothing of what is done to a cache between two passes, only what it is when the next one begins. Knows
neither processes nor models.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.kv_cache import KvCache


class ToldCache(KvCache):
    """The leader's cache, which remembers what its rows were after the previous pass."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], number: int) -> None:
        super().__init__(store)
        self.number = number
        self._origins: dict[int, int] = {}
        """Rows that something was copied to, each with the row that this was."""

    def place(self, first: int, rows: Sequence[int]) -> None:
        """See `KvCache`."""
        self._origins |= {first + index: self._origins.get(row, row) for index, row in enumerate(rows)}
        super().place(first, rows)

    def take_moves(self) -> list[tuple[int, int]]:
        """(row in use, the row after the previous pass that it was), which are told with this."""
        moves = [(row, origin) for row, origin in self._origins.items() if row < self.used and row != origin]
        self._origins = {}
        return moves


def follow(cache: KvCache, capacity: int, used: int, moved: Sequence[tuple[int, int]]) -> None:
    """Brings a follower's cache from its state after the previous pass to the leader's before the next."""
    cache.reserve(capacity)
    if moved:
        rows, origins = (torch.tensor(numbers, device=cache.store.device) for numbers in zip(*moved, strict=True))
        cache.store.index_copy_(3, rows, cache.store.index_select(3, origins))
    cache.used = used
