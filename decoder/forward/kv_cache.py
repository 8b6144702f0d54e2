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

    Its store begins as zeros: after `empty`, a NaN in a masked row would still poison the output. It has no heads where
    only the first pass tells how many there are; see `hold`.
    """

    def __init__(self, store: Float[Tensor, "L 2 H S D"]) -> None:
        self.length = 0
        """Committed rows."""
        self.used = 0
        """Rows in use; a forward pass appends here."""
        self.hold(store)

    def hold(self, store: Float[Tensor, "L 2 H S D"]) -> None:
        """Goes on with another tensor."""
        self.store = store
        # Taken once: a small model's pass consists of such steps.
        self.keys = store[:, 0].transpose(2, 3)
        """Shape (L, H, D, S)."""
        self.values = store[:, 1]
        """Shape (L, H, S, D)."""

    def keep(self, rows: Sequence[int]) -> None:
        """Commits these rows, rising indices from `length` on, after the committed ones; drops other drafted rows."""
        end = self.length + len(rows)
        # Rows at the beginning that are in place already need no move.
        moved = next((index for index, row in enumerate(rows, self.length) if row != index), end)
        if moved < end:
            self.place(moved, rows[moved - self.length :])
        self.length = self.used = end

    def place(self, first: int, rows: Sequence[int]) -> None:
        """Copies these rows to `first` and behind it: the only way in which rows move."""
        index = torch.tensor(rows, dtype=torch.long, device=self.store.device)
        self.store.narrow(3, first, len(rows)).copy_(self.store.index_select(3, index))

    @property
    def rows(self) -> int:
        """Rows that attention of the next pass goes through, its own left out."""
        return self.used

    def drop(self, first: int, count: int) -> None:
        """Lets go of so many rows from `first` on, committed ones or drafted ones; those behind them move there."""
        self.place(first, range(first + count, self.used))
        self.length -= max(0, min(count, self.length - first))
        self.used -= count

    def cut(self, length: int) -> None:
        """Keeps no more committed rows than so many, and no drafted ones."""
        self.length = self.used = min(self.length, length)

    def reserve(self, capacity: int) -> None:
        """Grows to `capacity` rows in all, if there are fewer; rows in use stay."""
        if capacity <= self.store.shape[3]:
            return
        small = self.store
        self.hold(small.new_zeros((*small.shape[:3], capacity, small.shape[4])))
        self.store[..., : self.used, :] = small[..., : self.used, :]


def side_by_side(width: int) -> list[int]:
    """The order of a key's rotated dimensions in which both of a pair are neighbours."""
    return [index for pair in zip(range(width // 2), range(width // 2, width), strict=True) for index in pair]
