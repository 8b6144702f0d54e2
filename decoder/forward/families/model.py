"""A native model, whose layers are few, large operations. The families differ only in their layers.

The affine part of each norm is folded into the matrices after it; [queries | keys | values] are one product. With a
parallel residual one normalised row serves attention and MLP, so a layer is one product for
[mlp | queries | keys | values] and one for [mlp | attention].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from decoder.forward.cpu.packed import Linear
from decoder.forward.families.attention import Attention, Pass, Rotation, attend, gathered, prepare
from decoder.forward.kv_cache import KvCache

Layer = Callable[[Tensor, Pass, int], Tensor]
"""(rows, state of the pass, number of this layer) -> rows; may overwrite its input rows."""


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm without its affine part."""

    shape: tuple[int]
    epsilon: float
    parts = ("weight", "bias")
    """Names of the weights of the affine part."""

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Rows of mean 0 and variance 1."""
        return torch.layer_norm(rows, self.shape, None, None, self.epsilon)


@dataclass(frozen=True)
class RmsNorm:
    """A root-mean-square norm without its factors."""

    shape: tuple[int]
    epsilon: float
    parts = ("weight",)

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Rows of mean square 1."""
        if rows.dtype is torch.float64:
            # Hugging Face computes this norm in float32, whatever the model's dtype.
            single = rows.float()
            return (single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + self.epsilon)).double()
        return torch.rms_norm(rows, self.shape, None, self.epsilon)


@dataclass(frozen=True)
class Activation:
    """Activation function of an MLP: columns in, columns out."""

    in_place: Callable[[Tensor], Tensor]
    """The function; may overwrite its input."""
    formula: Callable[[Tensor], Tensor]
    """The same function without in-place operations, for a compiler."""


def gelu(columns: Float[Tensor, "N Y"], approximate: str) -> Float[Tensor, "N Y"]:
    """GELU in place."""
    count, width = columns.shape
    # Seen as contiguous, a single row would go to oneDNN's activation, which wakes all threads for it.
    seen = columns.as_strided((count, width // 2, 2), (columns.stride(0), 1, width // 2))
    functional.gelu(seen, approximate=approximate, out=seen)  # type: ignore[call-arg]  # torch's stub lacks `out`
    return columns


def gated_silu(columns: Float[Tensor, "N 2Y"]) -> Float[Tensor, "N Y"]:
    """silu(gate) * up, for columns [gate | up]."""
    gate, up = columns.chunk(2, -1)
    return functional.silu(gate).mul_(up)


@dataclass(frozen=True)
class Heads:
    """Division of the columns [queries | keys | values] into heads."""

    heads: int
    """Number of key-value heads."""
    groups: int
    """Number of query heads for each key-value head."""
    width: int
    """Columns of one head."""
    rotated: int
    """Dimensions of a head that are rotated."""

    @cached_property
    def queries(self) -> int:
        """Columns of all queries."""
        return self.groups * self.heads * self.width


@dataclass(frozen=True)
class Parallel:
    """x + attention(norm(x)) + mlp(norm(x))."""

    norm: Callable[[Tensor], Tensor]
    heads: Heads
    activation: Activation
    inner: int
    """Columns of the MLP."""
    inward: Linear
    outward: Linear

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        """See `decoder.forward.families.model.Layer`."""
        product = self.inward(self.norm(rows))
        attended(product, self.inner, rows.dtype, self.heads, given, index)
        self.activation.in_place(product.narrow(1, 0, self.inner))
        return self.outward.added_to(rows, product.narrow(1, 0, self.inner + self.heads.queries))


@dataclass(frozen=True)
class Sequential:
    """y = x + attention(norm(x)), then y + mlp(norm(y))."""

    norm: Callable[[Tensor], Tensor]
    heads: Heads
    activation: Activation
    inward: Linear
    outward: Linear
    up: Linear
    down: Linear

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        """See `decoder.forward.families.model.Layer`."""
        product = self.inward(self.norm(rows))
        attended(product, 0, rows.dtype, self.heads, given, index)
        rows = self.outward.added_to(rows, product.narrow(1, 0, self.heads.queries))
        return self.down.added_to(rows, self.activation.in_place(self.up(self.norm(rows))))


def attended(
    product: Float[Tensor, "N Y"], first: int, dtype: torch.dtype, heads: Heads, given: Pass, index: int
) -> None:
    """Attention of the queries, keys and values in the columns from `first` on; its output replaces the queries.

    Each part is a view by strides: chains of small views would take longer than the attention of a small model.
    """
    same = product.dtype is dtype
    rows, start = (product, first) if same else (product[:, first:].to(dtype), 0)
    (count, width), head = rows.shape, heads.width
    if heads.rotated:
        turned = (count, 1, (heads.groups + 1) * heads.heads, heads.rotated // 2, 2)
        torch.view_as_complex(rows.as_strided(turned, (width, width, head, 2, 1), start)).mul_(given.rotation)
    columns = heads.heads * head
    kept = rows.as_strided((2, heads.heads, count, head), (columns, head, width, 1), start + heads.queries)
    given.new[index].copy_(kept)
    queries = _queries(rows, start, heads)
    result = attend(queries if heads.groups == 1 else queries.flatten(1, 2), given, index)
    (queries if same else _queries(product, first, heads)).copy_(result.view(queries.shape))


def _queries(product: Float[Tensor, "N Y"], first: int, heads: Heads) -> Tensor:
    """Shape (H, G, N, D); without groups (H, N, D)."""
    count, width = product.shape
    if heads.groups == 1:
        return product.as_strided((heads.heads, count, heads.width), (heads.width, width, 1), first)
    size = heads.heads, heads.groups, count, heads.width
    return product.as_strided(size, (heads.groups * heads.width, heads.width, width, 1), first)


@dataclass(frozen=True)
class NativeModel:
    """A model of a fast family with all its weights, packed for a CPU."""

    embedding: Float[Tensor, "V X"]
    layers: Sequence[Layer]
    normalise: Callable[[Tensor], Tensor]
    """The last norm without its affine part, which is folded into the head."""
    head: Linear
    rotation: Rotation
    rows: torch.dtype
    """Dtype of residual, norms, rotations and attention."""
    heads: Heads
    attention: Attention = gathered
    stored: torch.dtype | None = None
    """Dtype of keys and values; None: the same as `rows`."""

    def new_cache(self, capacity: int) -> KvCache:
        """An empty cache of `capacity` rows."""
        return KvCache(self.store(capacity, self.stored or self.rows))

    def store(self, capacity: int, dtype: torch.dtype) -> Float[Tensor, "L 2 H S D"]:
        """Zeros for keys and values of `capacity` rows."""
        shape = (len(self.layers), 2, self.heads.heads, capacity, self.heads.width)
        return torch.zeros(shape, dtype=dtype, device=self.embedding.device)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """Logits of N new rows, which are appended to the cache; see `LanguageModel.forward`."""
        return self.logits(self.hidden(cache, tokens, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Appends and commits plain text, and returns the logits after its last token."""
        positions = range(cache.length, cache.length + len(tokens))
        rows = self.hidden(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))
        cache.keep(positions)
        return self.logits(rows[-1:])[0]

    def hidden(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N X"]:
        """New rows after all layers, before the last norm; see `LanguageModel.forward`."""
        given = prepare(cache, self.rotation, positions, visible, self.heads.groups, self.attention)
        return self.through(torch.tensor(tokens), given, self.rows)

    def through(self, tokens: Int[Tensor, "N"], given: Pass, dtype: torch.dtype) -> Float[Tensor, "N X"]:
        """Hidden rows after all layers, in `dtype`."""
        rows = self.embedding.index_select(0, tokens).to(dtype)
        for index, layer in enumerate(self.layers):
            rows = layer(rows, given, index)
        return rows

    def logits(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        """Logits of hidden rows."""
        return self.head(self.normalise(rows)).to(self.rows)
