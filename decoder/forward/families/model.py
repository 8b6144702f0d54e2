"""The layer that all native families share, and the state that the layers of a model share in a pass.

The affine part of each norm is folded into the matrices after it, and [queries | keys | values] come from one matrix
product. With a parallel residual, attention and MLP have the same normalised input, so a layer has only two products:
one that computes [mlp | queries | keys | values], and one that takes [mlp | attention]. The two dimensions of a rotated
pair are adjacent here, so that a rotation is one complex product; in Hugging Face's modules they are half the rotated
dimensions apart. Queries and keys are reordered in the same way, so attention scores are unchanged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from torch.nn import functional

from decoder.forward.linear import Linear


class Rotation:
    """RoPE rotations as a table of complex numbers, which grows with the largest position used."""

    def __init__(self, frequencies: Float[Tensor, "R"], dtype: torch.dtype) -> None:
        self.frequencies = frequencies.float()
        self._dtype = dtype
        self._table = self._numbers(range(256))
        self.width = 2 * len(frequencies)
        """Number of rotated dimensions per head."""

    def at(self, positions: Sequence[int]) -> Complex[Tensor, "N 1 1 R"]:
        """One row of the table for each position; a single row if all positions are equal."""
        first, last = min(positions), max(positions)
        table = self.table(last)
        if first == last:
            return table.narrow(0, first, 1)
        if isinstance(positions, range):
            return table[positions.start : positions.stop : positions.step]
        return table.index_select(0, torch.tensor(positions, device=table.device))

    def table(self, last: int) -> Complex[Tensor, "P 1 1 R"]:
        """Rotations of all positions up to `last`, and possibly of further positions."""
        if last >= len(self._table):
            self._table = self._numbers(range(2 * last))
        return self._table

    def _numbers(self, positions: range) -> Complex[Tensor, "P 1 1 R"]:
        # The rotations are computed in float32 for every dtype of the model, as in Hugging Face's modules.
        places = torch.tensor(positions, dtype=torch.float, device=self.frequencies.device)
        angles = places[:, None] * self.frequencies
        return torch.complex(angles.cos().to(self._dtype), angles.sin().to(self._dtype))[:, None, None]


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


class RotationMatrices:
    """Makes RoPE rotations as real matrices, for a dtype that has no complex numbers."""

    def __init__(self, heads: Heads, dtype: torch.dtype, device: torch.device) -> None:
        width, rotated = heads.width, torch.arange(heads.rotated, device=device)
        self._same = torch.eye(width, dtype=dtype, device=device).repeat(1, 2)
        """Part of each matrix that does not depend on the position: a 1 for each number that is copied unchanged."""
        self._same[rotated, rotated] = 0
        self._signs = torch.zeros((heads.rotated, width, 2 * width), dtype=dtype, device=device)
        """Factor (1, -1 or 0) of each cosine and each sine in every element of a matrix."""
        cosines, sines = rotated[::2], rotated[1::2]
        self._signs[cosines, cosines, cosines] = self._signs[cosines, sines, sines] = 1
        self._signs[sines, cosines, sines], self._signs[sines, sines, cosines] = 1, -1

    def matrices(self, rotation: Complex[Tensor, "N 1 1 R"]) -> Float[Tensor, "N D 2D"]:
        """One matrix per row; the product of a head and its row's matrix is [rotated head | head]."""
        numbers = torch.view_as_real(rotation).flatten(1).to(self._same.dtype)
        return torch.addmm(self._same.flatten(), numbers, self._signs.flatten(1)).view(-1, *self._same.shape)


@dataclass(frozen=True)
class RowRotations:
    """Matrices of a pass's rotations, made once for all layers, and only if a layer needs them."""

    rotation_matrices: RotationMatrices
    rotation: Complex[Tensor, "N 1 1 R"]

    @cached_property
    def matrices(self) -> Float[Tensor, "N D 2D"]:
        return self.rotation_matrices.matrices(self.rotation)


class LayerSlots:
    """The slots of the store to which one layer's new keys and values are copied."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], layer: int, slots: Int[Tensor, "N"]) -> None:
        self._store, self._layer = store, layer
        self.slots = slots

    @property
    def rows(self) -> Float[Tensor, "2 H S D"]:
        return self._store[self._layer]

    def copy_(self, src: Float[Tensor, "2 H N D"], /) -> None:
        write_slots(self._store, self._layer, self.slots, src)


def write_slots(
    store: Float[Tensor, "L 2 H S D"], layer: int, slots: Int[Tensor, "N"], rows: Float[Tensor, "2 H N D"]
) -> None:
    """Writes rows to slots, hidden from torch.compile, which would otherwise copy the whole store for each write."""
    (_write_unseen if torch.compiler.is_compiling() else _write)(store, layer, slots, rows)


def _write(store: Tensor, layer: int, slots: Tensor, rows: Tensor) -> None:
    store[layer].index_copy_(2, slots, rows.to(store.dtype))


_write_unseen = torch.library.custom_op("decoder::write", _write, mutates_args=("store",))


class Pass(NamedTuple):
    """State shared by all layers of one forward pass; sequences have an item for each layer."""

    rotation: Complex[Tensor, "N 1 1 R"]
    new: Sequence[LayerSlots]
    keys: tuple[Float[Tensor, "H S D"], ...]
    values: tuple[Float[Tensor, "H S D"], ...]
    biases: Sequence[Float[Tensor, "N S"]]
    """For each layer, numbers that are added to its attention scores."""
    row_rotations: RowRotations | None = None
    """`rotation` as real matrices, for rows whose dtype has no complex numbers."""


def attend(
    queries: Float[Tensor, "H *GN D"],
    keys: Float[Tensor, "H S D"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "N S"],
) -> Float[Tensor, "H G N D"]:
    """Attention for scaled queries of shape (H, G, N, D), or (H, N, D) if G is 1, in one fused call that copies no
    queries and no shared keys or values.
    """
    asking = queries if queries.dim() == 4 else queries[:, None]
    shared = (len(keys), asking.shape[1], -1, -1)
    return functional.scaled_dot_product_attention(
        asking, keys[:, None].expand(shared), values[:, None].expand(shared), bias, scale=1.0
    )


@dataclass(frozen=True)
class LayerNorm:
    shape: tuple[int]
    epsilon: float
    parts = ("weight", "bias")
    """Names of the affine part's weights."""

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        return torch.layer_norm(rows, self.shape, None, None, self.epsilon)


@dataclass(frozen=True)
class RmsNorm:
    shape: tuple[int]
    epsilon: float
    parts = ("weight",)

    def __call__(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        if rows.dtype is torch.float64:
            # The norm is computed in float32, as Hugging Face's modules do for every dtype of the model.
            single = rows.float()
            return (single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + self.epsilon)).double()
        return torch.rms_norm(rows, self.shape, None, self.epsilon)


Norm = LayerNorm | RmsNorm


@dataclass(frozen=True)
class Activation:
    """Activation function of the MLP."""

    in_place: Callable[[Tensor], Tensor]
    """The function, which may overwrite its input."""
    formula: Callable[[Tensor], Tensor]
    """The same function without in-place operations, for torch.compile."""
    approximate: str | None = None
    """Torch's name for the kind of GELU; None if the function is not GELU."""


def gelu(columns: Float[Tensor, "N Y"], approximate: str) -> Float[Tensor, "N Y"]:
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


def normed(
    rows: Float[Tensor, "N X"], norm: Norm, linear: Linear, activation: Activation | None
) -> Float[Tensor, "N Y"]:
    """activation(linear(norm(rows))), or linear(norm(rows)) without an activation."""
    product = linear(norm(rows))
    return activation.in_place(product) if activation else product


def attended(product: Float[Tensor, "N Y"], first: int, heads: Heads, given: Pass, index: int) -> None:
    """Computes attention for the columns [queries | keys | values] from column `first` on; the output overwrites the
    queries. Each view is made by one call of `as_strided`: chains of views take longer than a small model's attention.
    """
    head = step = heads.width
    rows, start = product, first
    if given.row_rotations is not None:
        # Each head becomes [rotated head | head]. Queries and keys are read from the first half, values from the second
        # half. Keys and values are then in one tensor, so one operation stores both.
        both = torch.bmm(product[:, first:].unflatten(1, (-1, head)), given.row_rotations.matrices)
        rows, start, step = both.flatten(1), 0, 2 * head
    count, width = rows.shape
    if heads.rotated and given.row_rotations is None:
        pairs = (count, 1, (heads.groups + 1) * heads.heads, heads.rotated // 2, 2)
        torch.view_as_complex(rows.as_strided(pairs, (width, width, head, 2, 1), start)).mul_(given.rotation)
    columns = heads.heads * step + step - head
    first_key = start + heads.groups * heads.heads * step
    kept = rows.as_strided((2, heads.heads, count, head), (columns, step, width, 1), first_key)
    given.new[index].copy_(kept)
    result = attend(_queries(rows, start, step, heads), given.keys[index], given.values[index], given.biases[index])
    queries = _queries(product, first, head, heads)
    queries.copy_(result.view(queries.shape))


def _queries(product: Float[Tensor, "N Y"], first: int, step: int, heads: Heads) -> Tensor:
    """A view of the queries, one head every `step` columns; shape (H, G, N, D), or (H, N, D) if G is 1."""
    count, width = product.shape
    if heads.groups == 1:
        return product.as_strided((heads.heads, count, heads.width), (step, width, 1), first)
    size = heads.heads, heads.groups, count, heads.width
    return product.as_strided(size, (heads.groups * step, step, width, 1), first)


@dataclass(frozen=True)
class NativeLayer:
    """A layer with a parallel residual computes x + attention(norm(x)) + mlp(norm(x)). Any other layer computes
    y + mlp(norm(y)), where y = x + attention(norm(x)).

    The fields `attended` and `normed` select torch's operators or Triton kernels.
    """

    norm: Norm
    heads: Heads
    activation: Activation
    inward: Linear
    """Product that gives the columns [mlp | queries | keys | values]; without the MLP's columns if `up` is given."""
    outward: Linear
    up: Linear | None = None
    """First product of an MLP that follows the attention; None with a parallel residual."""
    down: Linear | None = None
    inner: int = 0
    """Number of the MLP's columns in `inward`."""
    attended: Callable[[Tensor, int, Heads, Pass, int], None] = attended
    normed: Callable[[Tensor, Norm, Linear, Activation | None], Tensor] = normed

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        """Overwrites its input rows."""
        product = self.normed(rows, self.norm, self.inward, None)
        self.attended(product, self.inner, self.heads, given, index)
        if self.inner:
            self.activation.in_place(product.narrow(1, 0, self.inner))
        rows = self.outward.added_to(rows, product.narrow(1, 0, self.inner + self.heads.queries))
        if self.up is None or self.down is None:
            return rows
        return self.down.added_to(rows, self.normed(rows, self.norm, self.up, self.activation))


Layer = Callable[[Tensor, Pass, int], Tensor]
"""(rows, state of the forward pass, number of the layer) -> rows; the function may overwrite its input rows."""


@dataclass(frozen=True)
class Fused:
    """A layer without in-place operations or complex numbers, as torch.compile requires; slower if not compiled."""

    layer: NativeLayer

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        layer, activated = self.layer, self.layer.activation.formula
        product = layer.inward(layer.norm(rows))
        mixed = self._attended(product[:, layer.inner :], given, index)
        if layer.inner:
            mixed = torch.cat((activated(product[:, : layer.inner]), mixed), 1)
        rows = rows + layer.outward(mixed)
        if layer.up is None or layer.down is None:
            return rows
        return rows + layer.down(activated(layer.up(layer.norm(rows))))

    def _attended(self, product: Float[Tensor, "N Y"], given: Pass, index: int) -> Float[Tensor, "N Z"]:
        heads, count = self.layer.heads, len(product)
        kept, asking = heads.heads, heads.heads * heads.groups
        queries, keys, values = product.view(count, -1, heads.width).transpose(0, 1).split((asking, kept, kept))
        given.new[index].copy_(torch.stack((rotate_heads(keys, given.rotation, heads.rotated), values)))
        queries = rotate_heads(queries, given.rotation, heads.rotated).unflatten(0, (kept, heads.groups))
        attended = attend(queries, given.keys[index], given.values[index], given.biases[index]).flatten(0, 1)
        return attended.transpose(0, 1).reshape(count, -1)


def rotate_heads(
    heads: Float[Tensor, "H N D"], rotation: Complex[Tensor, "N 1 1 R"], width: int
) -> Float[Tensor, "H N D"]:
    """Heads with their first `width` dimensions rotated; the two dimensions of a pair are adjacent."""
    cosine, sine = torch.view_as_real(rotation[:, 0, 0]).unbind(-1)
    left, right = heads[..., :width].unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack((left * cosine - right * sine, left * sine + right * cosine), -1)
    return torch.cat((pairs.flatten(-2).to(heads.dtype), heads[..., width:]), -1)
