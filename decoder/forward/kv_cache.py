"""Keys and values of one model and one text: the only module that touches Hugging Face's cache classes.

One tensor holds all layers, so that moving the accepted path is one gather. Rows up to `length` belong to the text;
rows after it are drafted nodes, in the order in which they were forwarded. Knows nothing of trees.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.cache_utils import Cache


class TreeCache(Cache):
    """A static cache whose rows can be kept or dropped one by one."""

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers=[])
        self.length = 0
        """Committed rows."""
        self.used = 0
        """Rows in use; a forward pass appends here."""
        self._layers = layers
        self._capacity = capacity
        self._store: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Appends this layer's new rows and returns all rows in use; shapes (1, H, rows, D)."""
        end = self.used + key_states.shape[2]
        store = self._allocated(key_states, value_states)
        store[layer_idx, 0, :, self.used : end] = key_states[0]
        store[layer_idx, 1, :, self.used : end] = value_states[0]
        return store[layer_idx, 0, None, :, :end], store[layer_idx, 1, None, :, :end]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 - all layers have the same rows
        """Rows that the next forward pass finds."""
        return self.used

    def keep(self, rows: Sequence[int]) -> None:
        """Commits these rows, in this order, directly after the committed ones and drops all other drafted rows.

        `rows` are rising indices from `length` on.
        """
        end = self.length + len(rows)
        if self._store is not None and list(rows) != list(range(self.length, end)):
            index = torch.tensor(rows, device=self._store.device)
            self._store[..., self.length : end, :] = self._store.index_select(3, index)
        self.length = self.used = end

    def reserve(self, capacity: int) -> None:
        """Makes room for `capacity` rows in all, if there is less; what is in use stays."""
        if capacity <= self._capacity:
            return
        self._capacity = capacity
        if self._store is not None:
            small = self._store
            self._store = small.new_zeros((*small.shape[:3], capacity, small.shape[4]))
            self._store[..., : self.used, :] = small[..., : self.used, :]

    def keys_values(self) -> Float[Tensor, "L 2 H P D"]:
        """The committed rows of all layers."""
        assert self._store is not None, "nothing was forwarded yet"  # noqa: S101 - a programmer's mistake
        return self._store[..., : self.length, :]

    def _allocated(self, keys: Tensor, values: Tensor) -> Tensor:
        if self._store is None:
            if keys.shape != values.shape:
                raise ValueError(f"keys and values differ in shape: {tuple(keys.shape)}, {tuple(values.shape)}")
            # Zeros, not empty: a NaN in a masked row would still poison the output.
            shape = (self._layers, 2, keys.shape[1], self._capacity, keys.shape[3])
            self._store = torch.zeros(shape, dtype=keys.dtype, device=keys.device)
        return self._store
