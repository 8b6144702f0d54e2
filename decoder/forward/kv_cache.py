"""Keys and values of one model and one text: one tensor for all layers, so that compaction is one gather.

Rows up to `length` belong to the text; rows after it are drafted nodes, in the order in which they were forwarded.
Knows nothing of trees, and no library of models.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class KvCache:
    """A static cache whose rows can be kept or dropped one by one.

    Its store begins as zeros: after `empty`, a NaN in a masked row would still poison the output. The store has no
    heads until the first pass where only that pass tells their number; see `hold`.
    """

    def __init__(self, store: Float[Tensor, "L 2 H S D"]) -> None:
        self.length = 0
        """Committed rows."""
        self.used = 0
        """Rows in use; a forward pass appends here."""
        self.hold(store)

    def hold(self, store: Float[Tensor, "L 2 H S D"]) -> None:
        """Replaces the tensor of keys and values."""
        self.store = store
        # Views are made once here: in a small model's pass, making them would cost a notable share of the time.
        self.keys = store[:, 0].transpose(2, 3)
        """Shape (L, H, D, S)."""
        self.values = store[:, 1]
        """Shape (L, H, S, D)."""

    def keep(self, rows: Sequence[int]) -> None:
        """Commits these rows, rising indices from `length` on, after the committed ones; drops other drafted rows."""
        end = self.length + len(rows)
        # Leading rows that are already in place need no move.
        moved = next((index for index, row in enumerate(rows, self.length) if row != index), end)
        if moved < end:
            self.place(moved, rows[moved - self.length :])
        self.length = self.used = end

    def place(self, first: int, rows: Sequence[int]) -> None:
        """Copies these rows to `first` and the rows after it; no other method moves rows."""
        index = torch.tensor(rows, dtype=torch.long, device=self.store.device)
        self.store.narrow(3, first, len(rows)).copy_(self.store.index_select(3, index))

    @property
    def rows(self) -> int:
        """Rows that attention of the next pass reads, without the rows of that pass."""
        return self.used

    def drop(self, first: int, count: int) -> None:
        """Drops `count` rows from `first` on, committed or drafted; the rows after them move down."""
        self.place(first, range(first + count, self.used))
        self.length -= max(0, min(count, self.length - first))
        self.used -= count

    def cut(self, length: int) -> None:
        """Truncates to at most `length` committed rows; drops all drafted rows."""
        self.length = self.used = min(self.length, length)

    def reserve(self, capacity: int) -> None:
        """Grows to `capacity` rows in all, where there are fewer; rows in use keep their contents."""
        if capacity <= self.store.shape[3]:
            return
        small = self.store
        self.hold(small.new_zeros((*small.shape[:3], capacity, small.shape[4])))
        self.store[..., : self.used, :] = small[..., : self.used, :]


def side_by_side(width: int) -> list[int]:
    """Order of a key's rotated dimensions that puts the two dimensions of each pair next to each other."""
    return [index for pair in zip(range(width // 2), range(width // 2, width), strict=True) for index in pair]
