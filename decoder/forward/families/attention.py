"""Shared by all native families: keys and values in one tensor, rotary positions, tree attention.

Rotated pairs of dimensions lie side by side here, so that a rotation is one complex product; Hugging Face keeps a
pair's halves apart. Queries and keys are ordered alike, so no score changes. Queries of one key-value head are stacked
as further rows: keys and values are never repeated.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Complex, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from decoder.forward.cpu.packed import times
from decoder.forward.kv_cache import KvCache

MANY_SCORES = 1 << 15
"""Scores of a head, for each thread, from which heads are attended to one by one: products of that size fill all
threads by themselves, and what lies between them stays in the caches."""
FUSED_FROM = 256
"""Rows from which attention is otherwise one fused call: separate products would hold all scores of all heads."""
FEW, LONG = 4, 1024
"""For so few rows and so many keys, keys times queries is faster than queries times keys; for one row it always is."""
VISIBLE, HIDDEN = np.float32(0), np.float32(-np.inf)
Attention = Callable[
    [Float[Tensor, "H GN D"], Float[Tensor, "H D S"], Float[Tensor, "H S D"], Float[Tensor, "GN M"] | None],
    Float[Tensor, "H GN D"],
]
"""(scaled queries, keys, values, bias of the last M keys) -> what each query gathers from all values."""


class Rotation:
    """Rotary positions of a model as one table of complex numbers, as long as was needed so far."""

    def __init__(self, frequencies: Float[Tensor, "R"], dtype: torch.dtype) -> None:
        self.frequencies = frequencies.float()
        self._dtype = dtype
        self._table = self._numbers(range(256))
        self.width = 2 * len(frequencies)
        """Dimensions of a head that are rotated."""

    def at(self, positions: Sequence[int]) -> Complex[Tensor, "N 1 1 R"]:
        """One row a position; a single row where all are the same."""
        first, last = min(positions), max(positions)
        if last >= len(self._table):
            self._table = self._numbers(range(2 * last))
        if first == last:
            return self._table.narrow(0, first, 1)
        if isinstance(positions, range):
            return self._table[positions.start : positions.stop : positions.step]
        return self._table.index_select(0, torch.tensor(positions, device=self._table.device))

    def _numbers(self, positions: range) -> Complex[Tensor, "P 1 1 R"]:
        # In float32, whatever the model's dtype, as Hugging Face computes them.
        places = torch.tensor(positions, dtype=torch.float, device=self.frequencies.device)
        angles = places[:, None] * self.frequencies
        return torch.complex(angles.cos().to(self._dtype), angles.sin().to(self._dtype))[:, None, None]


class Place(Protocol):
    """Where rows are written to: a part of a tensor, or what acts like one."""

    def copy_(self, src: Tensor, /) -> object:
        """Takes over the rows."""


class Pass(NamedTuple):
    """State shared by all layers of one forward pass."""

    rotation: Complex[Tensor, "N 1 1 R"]
    new: Sequence[Place]
    """Where each layer's new keys and values go, shape (2, H, N, D)."""
    keys: tuple[Float[Tensor, "H D S"], ...]
    values: tuple[Float[Tensor, "H S D"], ...]
    bias: Float[Tensor, "GN M"] | None
    """Added to the scores of the last M rows; None where everything is visible."""
    attention: Attention


def prepare(
    cache: KvCache,
    rotation: Rotation,
    positions: Sequence[int],
    visible: NDArray[np.bool_],
    groups: int,
    attention: Attention,
) -> Pass:
    """Makes room in the cache for N rows and says what they may see; the rows count as in use from now on."""
    start, count = cache.used, len(positions)
    end = cache.used = start + count
    return Pass(
        rotation=rotation.at(positions),
        new=cache.store.narrow(3, start, count).unbind(0),
        keys=cache.keys.narrow(3, 0, end).unbind(0),
        values=cache.values.narrow(2, 0, end).unbind(0),
        bias=additive(visible, cache.store.dtype, groups),
        attention=attention,
    )


def additive(visible: NDArray[np.bool_], dtype: torch.dtype, groups: int) -> Float[Tensor, "GN M"] | None:
    """Zero where a row may look, minus infinity where not; None where every row may look everywhere."""
    if visible.all():
        return None
    bias = torch.from_numpy(np.where(visible, VISIBLE, HIDDEN)).to(dtype)
    return bias.repeat(groups, 1) if groups > 1 else bias


def attend(queries: Float[Tensor, "H GN D"], given: Pass, index: int) -> Float[Tensor, "H GN D"]:
    """Attention of scaled queries to all rows in use, in layer `index`."""
    return given.attention(queries, given.keys[index], given.values[index], given.bias)


def gathered(
    queries: Float[Tensor, "H GN D"],
    keys: Float[Tensor, "H D S"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "GN M"] | None,
) -> Float[Tensor, "H GN D"]:
    """The fastest `Attention` in the dtype of what it is given."""
    rows, count = queries.shape[1], keys.shape[2]
    if rows * count >= MANY_SCORES and rows * count >= MANY_SCORES * torch.get_num_threads():
        return _gathered_by_head(queries, keys, values, bias)
    if rows >= FUSED_FROM:
        return fused(queries, keys, values, bias)
    scores = _scores(queries, keys)
    if bias is not None:
        scores.narrow(2, count - bias.shape[1], bias.shape[1]).add_(bias)
    return torch.bmm(torch.softmax(scores, -1), values)


def _scores(queries: Float[Tensor, "H GN D"], keys: Float[Tensor, "H D S"]) -> Float[Tensor, "H GN S"]:
    rows = queries.shape[1]
    if rows > 1 and (rows > FEW or keys.shape[2] < LONG):
        return torch.bmm(queries, keys)
    turned = torch.bmm(keys.transpose(1, 2), queries.transpose(1, 2)).transpose(1, 2)
    return turned if rows == 1 else turned.contiguous()


def _gathered_by_head(
    queries: Float[Tensor, "H GN D"],
    keys: Float[Tensor, "H D S"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "GN M"] | None,
) -> Float[Tensor, "H GN D"]:
    found = torch.empty_like(queries)
    for head, (asking, key, value) in enumerate(zip(queries, keys, values, strict=True)):
        scores = times(asking, key.t())
        if bias is not None:
            scores[:, -bias.shape[1] :].add_(bias)
        found[head] = times(torch.softmax(scores, -1), value.t())
    return found


def fused(
    queries: Float[Tensor, "H GN D"],
    keys: Float[Tensor, "H D S"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "GN M"] | None,
) -> Float[Tensor, "H GN D"]:
    """An `Attention` in one call, in the dtype of keys and values."""
    unbiased = 0 if bias is None else keys.shape[2] - bias.shape[1]
    mask = functional.pad(bias, (unbiased, 0)) if bias is not None and unbiased else bias
    found = functional.scaled_dot_product_attention(
        queries.to(values.dtype)[None], keys.transpose(1, 2)[None], values[None], mask, scale=1.0
    )
    return found[0]
