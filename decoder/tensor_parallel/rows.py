"""Synchronisation of a KV cache whose heads are divided among the ranks: moved rows are recorded and replayed.

Followers do not see the operations on the leader's cache between two passes; they see the cache's state when a pass
begins. Knows neither processes nor models.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from decoder.forward.kv_cache import KvCache


class LeaderCache(KvCache):
    """The leader's cache, which records how its rows moved since the previous pass."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], number: int) -> None:
        super().__init__(store)
        self.number = number
        self._origins: dict[int, int] = {}
        """For each row that was overwritten since the previous pass, the row that held its present contents after that
        pass.
        """

    def place(self, first: int, rows: Sequence[int]) -> None:
        self._origins |= {first + index: self._origins.get(row, row) for index, row in enumerate(rows)}
        super().place(first, rows)

    def take_moves(self) -> list[tuple[int, int]]:
        """Moved rows as pairs (new index, old index); clears the record."""
        moves = [(row, origin) for row, origin in self._origins.items() if row < self.used and row != origin]
        self._origins = {}
        return moves


def follow(cache: KvCache, capacity: int, used: int, moved: Sequence[tuple[int, int]]) -> None:
    """Brings a follower's cache from its state after the previous pass to the leader's state before the next pass."""
    cache.reserve(capacity)
    if moved:
        rows, origins = zip(*moved, strict=True)
        cache.gather(rows, origins)
    cache.used = used
