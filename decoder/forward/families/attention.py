"""Rotary positions and tree attention of all native families, with keys and values stored in one tensor.

The two dimensions of a rotated pair are adjacent here, so that a rotation is one complex product; in Hugging Face's
modules they are half a head apart. Queries and keys have the same order of dimensions, so scores are unchanged.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn import functional


class Rotation:
    """Rotary positions of a model, as a table of complex numbers that grows with the largest position used."""

    def __init__(self, frequencies: Float[Tensor, "R"], dtype: torch.dtype) -> None:
        self.frequencies = frequencies.float()
        self._dtype = dtype
        self._table = self._numbers(range(256))
        self.width = 2 * len(frequencies)
        """Number of rotated dimensions per head."""

    def at(self, positions: Sequence[int]) -> Complex[Tensor, "N 1 1 R"]:
        """Rotations, one row for each position; a single row if all positions are equal."""
        first, last = min(positions), max(positions)
        table = self.table(last)
        if first == last:
            return table.narrow(0, first, 1)
        if isinstance(positions, range):
            return table[positions.start : positions.stop : positions.step]
        return table.index_select(0, torch.tensor(positions, device=table.device))

    def table(self, last: int) -> Complex[Tensor, "P 1 1 R"]:
        """Rotations of all positions up to `last`, and of further ones."""
        if last >= len(self._table):
            self._table = self._numbers(range(2 * last))
        return self._table

    def _numbers(self, positions: range) -> Complex[Tensor, "P 1 1 R"]:
        # The rotations are computed in float32 for every dtype of the model, as in Hugging Face's modules.
        places = torch.tensor(positions, dtype=torch.float, device=self.frequencies.device)
        angles = places[:, None] * self.frequencies
        return torch.complex(angles.cos().to(self._dtype), angles.sin().to(self._dtype))[:, None, None]


class Place(Protocol):
    """Destination to which rows are copied: a view of a tensor, or an object with the method `copy_`."""

    def copy_(self, src: Tensor, /) -> object:
        """Writes the rows."""


class Turns(Protocol):
    """Rotations in a dtype that has no complex numbers."""

    @property
    def matrices(self) -> Float[Tensor, "N D 2D"]:
        """The matrix of each row, by which a head becomes [rotated head | head]."""


class Pass(NamedTuple):
    """State shared by all layers of one forward pass."""

    rotation: Complex[Tensor, "N 1 1 R"]
    new: Sequence[Place]
    """Where each layer writes its new keys and values, of shape (2, H, N, D)."""
    keys: tuple[Float[Tensor, "H S D"], ...]
    values: tuple[Float[Tensor, "H S D"], ...]
    biases: Sequence[Float[Tensor, "N S"]]
    """Bias of each layer, added to the scores of the rows that the layer reads."""
    turns: Turns | None = None
    """Form of `rotation` for rows whose dtype has no complex numbers."""


def attend(
    queries: Float[Tensor, "H *GN D"],
    keys: Float[Tensor, "H S D"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "N S"],
) -> Float[Tensor, "H G N D"]:
    """Weighted sum of the values for each scaled query, as one fused call that takes queries and bias without copies:
    query heads are not stacked as rows. On a GPU, each query head is then a block of its own, which reads shared keys
    from the cache.

    Queries have the shape (H, G, N, D), or (H, N, D) if each key-value head has one query head.
    """
    asking = queries if queries.dim() == 4 else queries[:, None]
    shared = (len(keys), asking.shape[1], -1, -1)
    return functional.scaled_dot_product_attention(
        asking, keys[:, None].expand(shared), values[:, None].expand(shared), bias, scale=1.0
    )
