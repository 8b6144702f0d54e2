"""A native model, whose layers consist of few, large operations. Families differ only in their layers.

The affine part of each norm is folded into the matrices after it, and [queries | keys | values] come from one matrix
product. With a parallel residual, attention and MLP have the same normalised input, so a layer has only two products:
one that computes [mlp | queries | keys | values], and one that takes [mlp | attention]. The two dimensions of a rotated
pair are adjacent here, so that a rotation is one complex product; in Hugging Face's modules they are half a head apart.
Queries and keys have the same order of dimensions, so scores are unchanged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn import functional

from decoder.forward.linear import Linear


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


Layer = Callable[[Tensor, Pass, int], Tensor]
"""(rows, state of the forward pass, number of the layer) -> rows; the function may overwrite its input rows."""
Normalise = Callable[[Tensor], Tensor]
"""A norm without its affine part."""


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm without its affine part."""

    shape: tuple[int]
    epsilon: float
    parts = ("weight", "bias")
    """Names of the affine part's weights."""

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Rows normalised to mean 0 and variance 1."""
        return torch.layer_norm(rows, self.shape, None, None, self.epsilon)


@dataclass(frozen=True)
class RmsNorm:
    """A root-mean-square norm without its weights."""

    shape: tuple[int]
    epsilon: float
    parts = ("weight",)

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Rows normalised to mean square 1."""
        if rows.dtype is torch.float64:
            # The norm is computed in float32, as Hugging Face's modules do for every dtype of the model.
            single = rows.float()
            return (single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + self.epsilon)).double()
        return torch.rms_norm(rows, self.shape, None, self.epsilon)


@dataclass(frozen=True)
class Activation:
    """Activation function of an MLP, applied to columns of the MLP's hidden rows."""

    in_place: Callable[[Tensor], Tensor]
    """The function; may overwrite its input."""
    formula: Callable[[Tensor], Tensor]
    """The same function without in-place operations, for a compiler."""
    approximate: str | None = None
    """Approximation of GELU, as torch names it; None if the function is not GELU."""


def gelu(columns: Float[Tensor, "N Y"], approximate: str) -> Float[Tensor, "N Y"]:
    """Applies GELU in place."""
    count, width = columns.shape
    # For a contiguous single row, torch would call oneDNN's activation, which wakes all threads; so torch gets a view
    # that is not contiguous.
    seen = columns.as_strided((count, width // 2, 2), (columns.stride(0), 1, width // 2))
    functional.gelu(seen, approximate=approximate, out=seen)  # type: ignore[call-arg]  # torch's stub lacks `out`
    return columns


def gated_silu(columns: Float[Tensor, "N 2Y"]) -> Float[Tensor, "N Y"]:
    """silu(gate) * up, for columns [gate | up]."""
    gate, up = columns.chunk(2, -1)
    return functional.silu(gate).mul_(up)


@dataclass(frozen=True)
class Heads:
    """How the columns [queries | keys | values] are divided into heads."""

    heads: int
    """Number of key-value heads."""
    groups: int
    """Number of query heads per key-value head."""
    width: int
    """Number of columns per head."""
    rotated: int
    """Number of rotated dimensions per head."""

    @cached_property
    def queries(self) -> int:
        """Number of columns of all queries."""
        return self.groups * self.heads * self.width


Attended = Callable[[Tensor, int, Heads, Pass, int], None]
"""Attention of a layer; see `attended`."""


def normed(
    rows: Float[Tensor, "N X"], norm: Normalise, linear: Linear, activation: Activation | None
) -> Float[Tensor, "N Y"]:
    """Product of normalised rows, with the activation applied if one is given."""
    product = linear(norm(rows))
    return activation.in_place(product) if activation else product


Normed = Callable[[Tensor, Normalise, Linear, Activation | None], Tensor]
"""Norm and product of a layer; see `normed`."""


@dataclass(frozen=True)
class Parallel:
    """A layer with parallel residual: x + attention(norm(x)) + mlp(norm(x))."""

    norm: Normalise
    heads: Heads
    activation: Activation
    inner: int
    """Number of columns of the MLP's hidden rows."""
    inward: Linear
    outward: Linear
    attended: Attended = field(default_factory=lambda: attended)
    normed: Normed = normed

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        product = self.normed(rows, self.norm, self.inward, None)
        self.attended(product, self.inner, self.heads, given, index)
        self.activation.in_place(product.narrow(1, 0, self.inner))
        return self.outward.added_to(rows, product.narrow(1, 0, self.inner + self.heads.queries))


@dataclass(frozen=True)
class Sequential:
    """A layer with sequential residual: y = x + attention(norm(x)), then y + mlp(norm(y))."""

    norm: Normalise
    heads: Heads
    activation: Activation
    inward: Linear
    outward: Linear
    up: Linear
    down: Linear
    attended: Attended = field(default_factory=lambda: attended)
    normed: Normed = normed

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        product = self.normed(rows, self.norm, self.inward, None)
        self.attended(product, 0, self.heads, given, index)
        rows = self.outward.added_to(rows, product.narrow(1, 0, self.heads.queries))
        return self.down.added_to(rows, self.normed(rows, self.norm, self.up, self.activation))


def attended(product: Float[Tensor, "N Y"], first: int, heads: Heads, given: Pass, index: int) -> None:
    """Computes attention for the columns [queries | keys | values], which begin at column `first`; the output replaces
    the queries.

    The parts are read through single strided views, since a chain of views would take longer than the attention of a
    small model.
    """
    head = step = heads.width
    rows, start = product, first
    if given.turns is not None:
        # Queries and keys are read from the first half of each product, values from the second half: with values in the
        # same tensor, keys and values are stored by one operation.
        both = torch.bmm(product[:, first:].unflatten(1, (-1, head)), given.turns.matrices)
        rows, start, step = both.flatten(1), 0, 2 * head
    count, width = rows.shape
    if heads.rotated and given.turns is None:
        turned = (count, 1, (heads.groups + 1) * heads.heads, heads.rotated // 2, 2)
        torch.view_as_complex(rows.as_strided(turned, (width, width, head, 2, 1), start)).mul_(given.rotation)
    columns = heads.heads * step + step - head
    first_key = start + heads.groups * heads.heads * step
    kept = rows.as_strided((2, heads.heads, count, head), (columns, step, width, 1), first_key)
    given.new[index].copy_(kept)
    result = attend(_queries(rows, start, step, heads), given.keys[index], given.values[index], given.biases[index])
    queries = _queries(product, first, head, heads)
    queries.copy_(result.view(queries.shape))


def _queries(product: Float[Tensor, "N Y"], first: int, step: int, heads: Heads) -> Tensor:
    """View of the queries, of which every `step` columns hold one head; shape (H, G, N, D), or (H, N, D) if each
    key-value head has one query head.
    """
    count, width = product.shape
    if heads.groups == 1:
        return product.as_strided((heads.heads, count, heads.width), (step, width, 1), first)
    size = heads.heads, heads.groups, count, heads.width
    return product.as_strided(size, (heads.groups * step, step, width, 1), first)
