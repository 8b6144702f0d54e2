"""A native model: passes of fixed or any shape, with half as many operations as those of a Hugging Face module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.families.model import (
    Heads,
    Layer,
    Normalise,
    Parallel,
    Pass,
    Rotation,
    Sequential,
    attend,
)
from decoder.forward.kv_cache import KvCache
from decoder.forward.linear import Linear
from decoder.forward.output_head import product
from decoder.forward.protocol import Forward
from decoder.forward.taps import LayerStates, Note, TappedNative
from decoder.forward.windows import FULL, LIMITS, Windows

ALIGNED = 8
"""Attention kernels require that a mask's number of columns is a multiple of this number, and products in half
precision are fastest if the columns of each matrix begin at such multiples.
"""


class LayerSlots:
    """The slots of the store to which one layer's new keys and values are copied."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], layer: int, slots: Int[Tensor, "N"]) -> None:
        self._store, self._layer = store, layer
        self.slots = slots

    @property
    def rows(self) -> Float[Tensor, "2 H S D"]:
        """Keys and values of all slots of the layer."""
        return self._store[self._layer]

    def copy_(self, src: Float[Tensor, "2 H N D"], /) -> None:
        write(self._store, self._layer, self.slots, src)


@dataclass(frozen=True, eq=False)
class NativeModel:
    """A model of a native family, with all its weights on one device and in one dtype, for texts of at most `context`
    tokens. It is a `StaticForward`, and also a `Forward`, so that rounds whose trees are too large for fixed shapes
    need no Hugging Face module.
    """

    embedding: Float[Tensor, "V X"]
    """Input embedding: one row per token id."""
    layers: Sequence[Layer]
    normalise: Normalise
    """The last norm without its affine part, which is folded into the output head."""
    head: Linear
    rotary: Rotation
    turning: "Turning | None"
    """Rotations for rows in bfloat16, which has no complex numbers; None for rows of another dtype."""
    heads: Heads
    windows: Windows
    context: int
    own: "NativeModel | None" = None
    """The form of which this one has other layers; None if there is no such form."""
    tables: dict[int, Tensor] = field(default_factory=dict)
    """Tables of rotations; keys are store capacities. All tables are kept, since a CUDA graph reads the table that it
    was captured with.

    If layers have windows, the last column of a table has the positions, on which windows depend.
    """

    def for_a_compiler(self) -> "NativeModel":
        """The same model with layers that torch.compile can compile; it shares the weights and stores."""
        return self.with_layers(_fused)

    def with_layers(self, changed: Callable[[Layer], Layer]) -> "NativeModel":
        """The same model with each layer changed by `changed`, which shares the weights; this form itself if no layer
        changes.
        """
        layers = [*map(changed, self.layers)]
        if all(after is before for after, before in zip(layers, self.layers, strict=True)):
            return self
        return replace(self, layers=layers, own=self.plain)

    def by_size(self, forms: Mapping[int, "NativeModel"]) -> "NativeModel":
        """The same model, whose passes are computed by the layers of these forms of it. A pass has the form of the
        least number of rows that is not below its own, or else of the largest number.
        """
        if len(set(forms.values())) == 1:
            return next(iter(forms.values()))
        layers = zip(*(forms[rows].layers for rows in sorted(forms)), strict=True)
        each = [LayerBySize(dict(zip(sorted(forms), of_one, strict=True))) for of_one in layers]
        return replace(self, layers=each, own=self.plain)

    def noting(self, notes: Mapping[int, Note]) -> "NativeModel":
        """The same model, whose passes call `notes[number]` before the layer of this number; logits have the same bits.
        It shares the weights.
        """
        layers = list(self.layers)
        for number, note in notes.items():
            layers[number] = _noted(note, layers[number])
        return replace(self, layers=layers, own=None)

    @property
    def plain(self) -> "NativeModel":
        """The same model with its own layers."""
        return self.own or self

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embedding.device

    @property
    def width(self) -> int:
        """Width of the layers' input rows."""
        return self.embedding.shape[1]

    def tapped(self, states: LayerStates) -> Forward:
        return TappedNative(self, states)

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        if capacity not in self.tables:
            self.tables[capacity] = self._table(min(capacity, self.context))
        return self._store(capacity)

    def _store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        return self.embedding.new_zeros((len(self.layers), 2, self.heads.heads, capacity, self.heads.width))

    def _table(self, positions: int) -> Complex[Tensor, "P 1 1 R"]:
        rotations = self.rotary.at(range(positions))
        if not self.windows.sizes:
            return rotations
        column = torch.arange(positions, device=rotations.device).to(rotations.dtype)
        return torch.cat((rotations, column[:, None, None, None]), 3)

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Complex[Tensor, "N 1 1 R"]:
        return self.tables[store.shape[3]].index_select(0, positions)

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Complex[Tensor, "N 1 1 R"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        biases: Mapping[str, Tensor] = {FULL: bias}
        if self.windows.sizes:
            biases = windowed_by_slot(bias, rotation[:, 0, 0, -1].real, self.windows)
            rotation = rotation[..., :-1]
        return self._output(self._hidden(store, tokens, rotation, slots, biases))

    def _hidden(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Complex[Tensor, "N 1 1 R"],
        slots: Int[Tensor, "N"],
        biases: Mapping[str, Float[Tensor, "N M"]],
    ) -> Float[Tensor, "N X"]:
        """Hidden rows after all layers; `biases` has, for each layer type, the bias on the scores of the first M
        slots.
        """
        visible = next(iter(biases.values())).shape[1]
        given = Pass(
            rotation=rotation,
            new=[LayerSlots(store, layer, slots) for layer in range(len(store))],
            keys=store[:, 0, :, :visible].unbind(0),
            values=store[:, 1, :, :visible].unbind(0),
            biases=[biases[kind] for kind in self.windows.layers],
            turns=TurnedRows(self.turning, rotation.expand(len(tokens), -1, -1, -1)) if self.turning else None,
        )
        rows = self.embedding.index_select(0, tokens)
        for index, layer in enumerate(self.layers):
            rows = layer(rows, given, index)
        return rows

    def _output(self, hidden: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        return product(self.normalise(hidden), self.head.weight, self.head.bias)

    def new_cache(self, capacity: int) -> KvCache:
        cache = KvCache(self._store(aligned(capacity)))
        return cache.with_positions() if self.windows.sizes else cache

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        return self.with_hidden(cache, tokens, positions, visible)[1]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        positions = range(cache.length, cache.length + len(tokens))
        _, logits = self.with_hidden(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_), len(tokens) - 1)
        cache.keep(positions)
        return logits[0]

    def with_hidden(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        positions: Sequence[int],
        visible: NDArray[np.bool_],
        first_logits: int = 0,
    ) -> tuple[Float[Tensor, "N X"], Float[Tensor, "M V"]]:
        store, first, rows = cache.store, cache.used, len(tokens)
        end = first + rows
        bias = torch.zeros((rows, min(aligned(end), store.shape[3])), dtype=store.dtype)
        hidden = torch.from_numpy(~visible)
        bias[:, end - visible.shape[1] : end].masked_fill_(hidden, torch.finfo(store.dtype).min)
        bias[:, end:] = torch.finfo(store.dtype).min
        biases: Mapping[str, Tensor] = {FULL: bias}
        if cache.positions is not None:
            cache.note(positions)
            biases = windowed(bias, cache.positions[first:end], cache.positions[: bias.shape[1]], self.windows)
        rotation = self.rotary.at(positions)
        slots = torch.arange(first, end, device=store.device)
        given = torch.tensor(tokens, device=store.device)
        cache.used = end
        on_device = {kind: each.to(store.device) for kind, each in biases.items()}
        after = self._hidden(store, given, rotation, slots, on_device)
        return after, self._output(after[first_logits:])


class Turning:
    """Makes matrices of rotations, in a dtype that has no complex numbers."""

    def __init__(self, heads: Heads, dtype: torch.dtype, device: torch.device) -> None:
        width, turned = heads.width, torch.arange(heads.rotated, device=device)
        self._same = torch.eye(width, dtype=dtype, device=device).repeat(1, 2)
        """The part of the matrices that does not depend on positions: ones for each number that is kept."""
        self._same[turned, turned] = 0
        self._signs = torch.zeros((heads.rotated, width, 2 * width), dtype=dtype, device=device)
        """Where each cosine and each sine goes in a matrix, and with which sign."""
        cosines, sines = turned[::2], turned[1::2]
        self._signs[cosines, cosines, cosines] = self._signs[cosines, sines, sines] = 1
        self._signs[sines, cosines, sines], self._signs[sines, sines, cosines] = 1, -1

    def matrices(self, rotation: Complex[Tensor, "N 1 1 R"]) -> Float[Tensor, "N D 2D"]:
        numbers = torch.view_as_real(rotation).flatten(1).to(self._same.dtype)
        return torch.addmm(self._same.flatten(), numbers, self._signs.flatten(1)).view(-1, *self._same.shape)


@dataclass(frozen=True)
class TurnedRows:
    """The `Turns` of a pass, made once for all layers, and only if a layer needs them."""

    turning: Turning
    rotation: Complex[Tensor, "N 1 1 R"]

    @cached_property
    def matrices(self) -> Float[Tensor, "N D 2D"]:
        return self.turning.matrices(self.rotation)


def windowed(
    bias: Float[Tensor, "N M"], queries: Int[Tensor, "N"], keys: Int[Tensor, "M"], windows: Windows
) -> Mapping[str, Float[Tensor, "N M"]]:
    """Bias of each layer type, in which the slots outside the window of this type are hidden.

    Args:
        bias: Bias of layers without windows.
        queries: Positions of the rows.
        keys: Positions of the slots.
        windows: Windows of the layers, at least one.
    """
    hidden = torch.finfo(bias.dtype).min
    limited = {
        kind: bias.masked_fill(~LIMITS[kind].within(queries, keys, size), hidden)
        for kind, size in windows.sizes.items()
    }
    return {kind: limited.get(kind, bias) for kind in dict.fromkeys(windows.layers)}


def windowed_by_slot(
    bias: Float[Tensor, "N M"], queries: Int[Tensor, "N"], windows: Windows
) -> Mapping[str, Float[Tensor, "N M"]]:
    """`windowed` with the slots' numbers as positions. All windows must be sliding windows, with more tokens than any
    tree has levels.

    For rows of the text, slot number and position are equal. A drafted row's position may be lower than its slot
    number, but both numbers are within the windows of all nodes below the row.
    """
    return windowed(bias, queries, torch.arange(bias.shape[1], device=bias.device), windows)


def aligned(rows: int) -> int:
    """The number of rows, rounded up to a multiple of `ALIGNED`."""
    return -(-rows // ALIGNED) * ALIGNED


def _noted(note: Note, layer: Layer) -> Layer:
    def noted(rows: Tensor, given: Pass, index: int) -> Tensor:
        note(rows, given, index)
        return layer(rows, given, index)

    return noted


@dataclass(frozen=True)
class LayerBySize:
    """A layer that computes passes of different numbers of rows in different forms."""

    forms: Mapping[int, Layer]
    """For each number of rows, in ascending order: the form for passes of at most this number of rows; the last form
    computes all larger passes too.
    """

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        fitting = (form for most, form in self.forms.items() if most >= len(rows))
        return next(fitting, self.last)(rows, given, index)

    @property
    def last(self) -> Layer:
        """The form for the largest passes."""
        return list(self.forms.values())[-1]


def _fused(layer: Layer) -> Layer:
    one = layer.last if isinstance(layer, LayerBySize) else layer
    return Fused(one) if isinstance(one, Parallel | Sequential) else one


@dataclass(frozen=True)
class Fused:
    """A layer without in-place operations and complex numbers, as torch.compile requires.

    If not compiled, it is slower than `layer`, which gives the same result with in-place operations.
    """

    layer: Parallel | Sequential

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        layer, activated = self.layer, self.layer.activation.formula
        product = layer.inward(layer.norm(rows))
        if isinstance(layer, Parallel):
            attended = self._attended(product[:, layer.inner :], given, index)
            return rows + layer.outward(torch.cat((activated(product[:, : layer.inner]), attended), 1))
        rows = rows + layer.outward(self._attended(product, given, index))
        return rows + layer.down(activated(layer.up(layer.norm(rows))))

    def _attended(self, product: Float[Tensor, "N Y"], given: Pass, index: int) -> Float[Tensor, "N Z"]:
        heads, count = self.layer.heads, len(product)
        kept, asking = heads.heads, heads.heads * heads.groups
        queries, keys, values = product.view(count, -1, heads.width).transpose(0, 1).split((asking, kept, kept))
        given.new[index].copy_(torch.stack((turned(keys, given.rotation, heads.rotated), values)))
        queries = turned(queries, given.rotation, heads.rotated).unflatten(0, (kept, heads.groups))
        attended = attend(queries, given.keys[index], given.values[index], given.biases[index]).flatten(0, 1)
        return attended.transpose(0, 1).reshape(count, -1)


def turned(heads: Float[Tensor, "H N D"], rotation: Complex[Tensor, "N 1 1 R"], width: int) -> Float[Tensor, "H N D"]:
    """Heads with their first `width` dimensions rotated; the two dimensions of a pair are adjacent."""
    cosine, sine = torch.view_as_real(rotation[:, 0, 0]).unbind(-1)
    left, right = heads[..., :width].unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack((left * cosine - right * sine, left * sine + right * cosine), -1)
    return torch.cat((pairs.flatten(-2).to(heads.dtype), heads[..., width:]), -1)


def write(
    store: Float[Tensor, "L 2 H S D"], layer: int, slots: Int[Tensor, "N"], rows: Float[Tensor, "2 H N D"]
) -> None:
    """Writes one layer's new keys and values to these slots of the store.

    The write is opaque to torch.compile, which would otherwise copy the whole store for each write.
    """
    if torch.compiler.is_compiling():
        _write_unseen(store, layer, slots, rows)
    else:
        _write(store, layer, slots, rows)


def _write(store: Tensor, layer: int, slots: Tensor, rows: Tensor) -> None:
    store[layer].index_copy_(2, slots, rows.to(store.dtype))


_write_unseen = torch.library.custom_op("decoder::write", _write, mutates_args=("store",))
