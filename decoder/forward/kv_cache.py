"""KV cache of one model and one text."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

KEYS, VALUES = "keys", "values"
MORE_ROWS = 1024
"""Number of rows added to a full cache: if only one level's rows were added, each level would copy the cache."""
Part = tuple[str, int]
"""(kind of cached rows, for example `KEYS`; number of the layer)."""


class KvCache:
    """Tensors are filled with zeros: uninitialised memory may contain NaN, and a NaN in a masked row would make the
    output NaN. If the shapes of keys and values are unknown before the first pass, `store` is empty until `settle`.
    """

    def __init__(self, store: Float[Tensor, "L 2 H S D"]) -> None:
        self.length = 0
        """Number of committed rows."""
        self.used = 0
        """Number of rows in use; a forward pass appends its rows after them."""
        self.parts: dict[Part, tuple[Tensor, int]] = {}
        """Tensors of the parts that are not in `store`, each with the dimension along which its rows lie."""
        self._first: dict[Part, tuple[Tensor, int]] = {}
        """Rows that the first pass has computed, with the dimension along which they lie; empty after `settle`."""
        self.positions: Tensor | None = None
        """Position of each row in the text, shape (S,), on the host; None if no forward form reads positions."""
        self.store = store

    @property
    def capacity(self) -> int:
        return self.store.shape[3]

    @property
    def nbytes(self) -> int:
        """Allocated bytes, including those of unused rows."""
        return sum(tensor.untyped_storage().nbytes() for tensor, _ in self._tensors())

    def with_positions(self) -> "KvCache":
        self.positions = torch.arange(self.capacity)
        return self

    def note(self, positions: Sequence[int]) -> Int[np.ndarray, "S"]:
        """Stores the positions of the next rows; returns the positions of all rows."""
        assert self.positions is not None, "only forward forms that read positions call this"  # noqa: S101 - for mypy
        noted: NDArray[np.int64] = self.positions.numpy()[: self.used + len(positions)]
        noted[self.used :] = positions
        return noted

    def append_part(self, part: Part, rows: Tensor, axis: int) -> Tensor:
        """Writes new rows of a part along dimension `axis`; returns all rows of the part. The first pass only
        records the part, and `settle` allocates it. Raises ValueError for a part that was not in the first pass.
        """
        if part in self.parts:
            tensor, _ = self.parts[part]
            end = self.used + rows.shape[axis]
            tensor.narrow(axis, self.used, rows.shape[axis]).copy_(rows)
            return tensor.narrow(axis, 0, end)
        if self.used:
            raise ValueError(f"layer {part[1]} has {part[0]} that it did not have in the first pass")
        self._first[part] = rows, axis
        return rows

    def settle(self) -> None:
        """After the first pass, allocates `store` if all keys and values have one shape and dtype, else `parts`."""
        if not self._first:
            return
        first, self._first = self._first, {}
        alike = [(what, layer) for layer in range(len(self.store)) for what in (KEYS, VALUES)]
        if first.keys() != set(alike) or len({(rows.shape, rows.dtype) for rows, _ in first.values()}) > 1:
            self.parts = {part: (_grown(rows, axis, self.capacity), axis) for part, (rows, axis) in first.items()}
            return
        rows, _ = first[alike[0]]
        heads, count, width = rows.shape
        self.store = rows.new_zeros((len(self.store), 2, heads, self.capacity, width))
        for what, layer in alike:
            self.store[layer, int(what == VALUES), :, :count] = first[what, layer][0]

    def keep(self, rows: Sequence[int]) -> None:
        """Commits these drafted rows, given as ascending indices; drops all other drafted rows."""
        end = self.length + len(rows)
        # Leading rows that are already in place need not be moved.
        moved = next((index for index, row in enumerate(rows, self.length) if row != index), end)
        if moved < end:
            self.place(moved, rows[moved - self.length :])
        self.length = self.used = end

    def place(self, first: int, rows: Sequence[int]) -> None:
        """Copies rows to successive indices from `first` on; called by `keep` and `drop`."""
        for tensor, axis in self._tensors():
            if tensor.device.type == "cpu":
                # numpy moves a few rows in a third of torch's time.
                bits = _bits(tensor)
                bits[(*[slice(None)] * axis, slice(first, first + len(rows)))] = bits.take(rows, axis)
            else:
                index = torch.tensor(rows, dtype=torch.long, device=tensor.device)
                tensor.narrow(axis, first, len(rows)).copy_(tensor.index_select(axis, index))

    def gather(self, rows: Sequence[int], origins: Sequence[int]) -> None:
        """Copies rows from indices `origins` to indices `rows`; reads all source rows before it overwrites any row."""
        for tensor, axis in self._tensors():
            to, source = (torch.tensor(numbers, dtype=torch.long, device=tensor.device) for numbers in (rows, origins))
            tensor.index_copy_(axis, to, tensor.index_select(axis, source))

    def _tensors(self) -> Iterator[tuple[Tensor, int]]:
        """All tensors, each with the dimension along which its rows lie."""
        if self.store.numel() or not self.parts:
            yield self.store, 3
        yield from self.parts.values()
        if self.positions is not None:
            yield self.positions, 0

    @property
    def rows(self) -> int:
        """Number of cached rows that the attention of the next pass reads."""
        return self.used

    def drop(self, first: int, count: int) -> None:
        """Drops `count` rows from index `first` on, committed or drafted; later rows move to lower indices."""
        self.place(first, range(first + count, self.used))
        self.length -= max(0, min(count, self.length - first))
        self.used -= count

    def cut(self, length: int) -> None:
        """Truncates to at most `length` committed rows; drops all drafted rows."""
        self.length = self.used = min(self.length, length)

    def assume(self, length: int) -> None:
        """For timed passes: sets the number of committed rows without computing them; drops all drafted rows."""
        self.length = self.used = length

    def reserve(self, capacity: int) -> None:
        """Grows the cache to at least `capacity` rows; rows in use keep their contents."""
        if capacity <= self.capacity:
            return
        self.parts = {part: (_grown(rows, axis, capacity), axis) for part, (rows, axis) in self.parts.items()}
        if self.positions is not None:
            self.positions = torch.cat([self.positions, torch.arange(self.capacity, capacity)])
        small = self.store
        self.store = small.new_zeros((*small.shape[:3], capacity, small.shape[4]))
        self.store[..., : self.used, :] = small[..., : self.used, :]


def _bits(tensor: Tensor) -> NDArray[Any]:
    """A numpy array that shares the tensor's memory; of dtype int16 for bfloat16, which numpy lacks."""
    array: NDArray[Any] = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _grown(rows: Tensor, axis: int, capacity: int) -> Tensor:
    grown = rows.new_zeros((*rows.shape[:axis], capacity, *rows.shape[axis + 1 :]))
    grown.narrow(axis, 0, rows.shape[axis]).copy_(rows)
    return grown


def side_by_side(width: int) -> list[int]:
    """Permutation of a key's rotated dimensions that makes the two dimensions of each rotated pair adjacent."""
    return [index for pair in zip(range(width // 2), range(width // 2, width), strict=True) for index in pair]
