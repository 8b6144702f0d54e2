"""Rotary positions and tree attention of all native families, with keys and values stored in one tensor.

The two dimensions of a rotated pair are adjacent here, so that a rotation is one complex product; in Hugging Face's
modules they are half a head apart. Queries and keys have the same order of dimensions, so scores are unchanged. On a
CPU, query heads that share a key-value head are stacked as further rows, so keys and values are never repeated.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Complex, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from decoder.forward.kv_cache import KvCache
from decoder.forward.windows import Windows, first_seen, whole_mask

MANY_SCORES = 1 << 15
"""Least number of scores per head and thread at which heads are computed one by one: the products of a single head then
use all threads, and intermediate results stay in the CPU's caches.
"""
FUSED_FROM = 256
"""Least number of rows at which attention is one fused call, which does not store all scores. If there are
`MANY_SCORES` scores or more per head and thread, heads are computed one by one instead.
"""
FEW, LONG = 4, 1024
"""The product keys x queries is faster than queries x keys for a single row of queries. With at least LONG keys, it is
faster for up to FEW rows.
"""
VISIBLE, HIDDEN = np.float32(0), np.float32(-np.inf)
Attention = Callable[
    [Float[Tensor, "H *GN D"], Float[Tensor, "H D S"], Float[Tensor, "H S D"], Float[Tensor, "GN M"] | None],
    Float[Tensor, "H *GN D"],
]
"""(scaled queries, keys, values, bias on the last M keys) -> weighted sum of the values for each query.

Queries have the shape (H, G, N, D), or (H, N, D) if each key-value head has one query head. `fused_by_head` takes the
bias of N rows, the other functions take it once for each of the G query heads.
"""


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
    keys: tuple[Float[Tensor, "H D S"], ...]
    values: tuple[Float[Tensor, "H S D"], ...]
    biases: Sequence[Float[Tensor, "GN M"] | None]
    """Bias of each layer, added to the scores of the last M rows that the layer reads; None if every query sees all
    rows.
    """
    attention: Attention
    turns: Turns | None = None
    """Form of `rotation` for rows whose dtype has no complex numbers."""


def prepare(
    cache: KvCache,
    rotation: Rotation,
    positions: Sequence[int],
    visible: NDArray[np.bool_],
    groups: int,
) -> Pass:
    """Reserves the cache's next N rows, and returns the state of the forward pass that computes them."""
    start, count = cache.used, len(positions)
    end = cache.used = start + count
    new = cache.store.narrow(3, start, count).unbind(0)
    return Pass(
        rotation=rotation.at(positions),
        new=new,
        keys=cache.keys.narrow(3, 0, end).unbind(0),
        values=cache.values.narrow(2, 0, end).unbind(0),
        biases=(additive(visible, cache.store.dtype, groups),) * len(new),
        attention=gathered,
    )


def prepare_windowed(
    cache: KvCache,
    rotation: Rotation,
    positions: Sequence[int],
    visible: NDArray[np.bool_],
    groups: int,
    windows: Windows,
) -> Pass:
    """Like `prepare`, for a model with attention windows: a layer with a window does not read the rows before the
    window.
    """
    keys = cache.note(positions)
    masks = windows.masks(whole_mask(visible, len(keys)), keys[cache.used :], keys)
    given = prepare(cache, rotation, positions, visible, groups)
    starts = {kind: first_seen(masks[kind]) for kind in windows.sizes}
    biases = {kind: additive(masks[kind][:, start:], cache.store.dtype, groups) for kind, start in starts.items()}
    reads_from = [starts.get(kind, 0) for kind in windows.layers]
    return given._replace(
        keys=tuple(rows[:, :, start:] for rows, start in zip(given.keys, reads_from, strict=True)),
        values=tuple(rows[:, start:] for rows, start in zip(given.values, reads_from, strict=True)),
        biases=tuple(biases.get(kind, bias) for kind, bias in zip(windows.layers, given.biases, strict=True)),
    )


def additive(visible: NDArray[np.bool_], dtype: torch.dtype, groups: int) -> Float[Tensor, "GN M"] | None:
    """Attention bias: 0 for visible rows, minus infinity for hidden rows; None if every query sees all rows."""
    if visible.all():
        return None
    bias = torch.from_numpy(np.where(visible, VISIBLE, HIDDEN)).to(dtype)
    return bias.repeat(groups, 1) if groups > 1 else bias


def attend(queries: Float[Tensor, "H *GN D"], given: Pass, index: int) -> Float[Tensor, "H *GN D"]:
    """Attention output of layer `index`: scaled queries attend to the rows that the layer reads."""
    return given.attention(queries, given.keys[index], given.values[index], given.biases[index])


def gathered(
    queries: Float[Tensor, "H *GN D"],
    keys: Float[Tensor, "H D S"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "GN M"] | None,
) -> Float[Tensor, "H GN D"]:
    """`Attention` in the dtype of the inputs, by the implementation that is fastest for their sizes."""
    if queries.dim() > keys.dim():
        queries = queries.flatten(1, 2)
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
    attended = torch.empty_like(queries)
    for head, (asking, key, value) in enumerate(zip(queries, keys, values, strict=True)):
        scores = functional.linear(asking, key.t())
        if bias is not None:
            scores[:, -bias.shape[1] :].add_(bias)
        attended[head] = torch.softmax(scores, -1) @ value
    return attended


def fused(
    queries: Float[Tensor, "H GN D"],
    keys: Float[Tensor, "H D S"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "GN M"] | None,
) -> Float[Tensor, "H GN D"]:
    """`Attention` as one fused call, in the dtype of keys and values."""
    unbiased = 0 if bias is None else keys.shape[2] - bias.shape[1]
    mask = functional.pad(bias, (unbiased, 0)) if bias is not None and unbiased else bias
    attended = functional.scaled_dot_product_attention(
        queries.to(values.dtype)[None], keys.transpose(1, 2)[None], values[None], mask, scale=1.0
    )
    return attended[0]


def fused_by_head(
    queries: Float[Tensor, "H *GN D"],
    keys: Float[Tensor, "H D S"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "N M"] | None,
) -> Float[Tensor, "H G N D"]:
    """`Attention` as one fused call that takes queries and bias without copies: query heads are not stacked as rows.

    On a GPU, each query head is then a block of its own, which reads shared keys from the cache.
    """
    asking = queries if queries.dim() == 4 else queries[:, None]
    shared = (len(keys), asking.shape[1], -1, -1)
    return functional.scaled_dot_product_attention(
        asking, keys.transpose(1, 2)[:, None].expand(shared), values[:, None].expand(shared), bias, scale=1.0
    )
