"""KV cache of one model and one text: one tensor for all layers, so that dropping rows is one gather.

The first `length` rows belong to the text; rows after them are drafted nodes, in the order of their forward passes.
Knows neither trees nor model libraries.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class KvCache:
    """A preallocated KV cache whose rows can be kept or dropped one by one.

    Its tensor is filled with zeros, since in uninitialised memory a NaN in a masked row would turn the output into NaN.
    The tensor has no heads before the first pass if their number is unknown until then; see `hold`.
    """

    def __init__(self, store: Float[Tensor, "L 2 H S D"]) -> None:
        self.length = 0
        """Number of committed rows."""
        self.used = 0
        """Number of rows in use; a forward pass appends its rows after them."""
        self.hold(store)

    def hold(self, store: Float[Tensor, "L 2 H S D"]) -> None:
        """Replaces the tensor of keys and values."""
        self.store = store
        # Views are made once here: making them in each pass would take a notable part of a small model's time.
        self.keys = store[:, 0].transpose(2, 3)
        """Keys, shape (L, H, D, S)."""
        self.values = store[:, 1]
        """Values, shape (L, H, S, D)."""

    def keep(self, rows: Sequence[int]) -> None:
        """Commits these drafted rows, given as ascending indices; drops all other drafted rows."""
        end = self.length + len(rows)
        # Leading rows that are already in place need not be moved.
        moved = next((index for index, row in enumerate(rows, self.length) if row != index), end)
        if moved < end:
            self.place(moved, rows[moved - self.length :])
        self.length = self.used = end

    def place(self, first: int, rows: Sequence[int]) -> None:
        """Copies these rows to index `first` and the indices after it; the only method that moves rows."""
        index = torch.tensor(rows, dtype=torch.long, device=self.store.device)
        self.store.narrow(3, first, len(rows)).copy_(self.store.index_select(3, index))

    @property
    def rows(self) -> int:
        """Number of cached rows that attention of the next pass reads."""
        return self.used

    def drop(self, first: int, count: int) -> None:
        """Drops `count` rows from index `first` on, committed or drafted; later rows move to lower indices."""
        self.place(first, range(first + count, self.used))
        self.length -= max(0, min(count, self.length - first))
        self.used -= count

    def cut(self, length: int) -> None:
        """Truncates to at most `length` committed rows; drops all drafted rows."""
        self.length = self.used = min(self.length, length)

    def stand_at(self, length: int) -> None:
        """Counts `length` rows as committed whatever they contain, for the timing of passes after them."""
        self.length = self.used = length

    def reserve(self, capacity: int) -> None:
        """Grows the cache to a total of `capacity` rows if it has fewer; rows in use keep their contents."""
        if capacity <= self.store.shape[3]:
            return
        small = self.store
        self.hold(small.new_zeros((*small.shape[:3], capacity, small.shape[4])))
        self.store[..., : self.used, :] = small[..., : self.used, :]


def side_by_side(width: int) -> list[int]:
    """Permutation of a key's rotated dimensions that makes the two dimensions of each rotated pair adjacent."""
    return [index for pair in zip(range(width // 2), range(width // 2, width), strict=True) for index in pair]
