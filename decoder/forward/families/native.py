"""A native model. Its passes, of fixed or any shape, have half as many operations as a Hugging Face module's passes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from decoder.forward.families.model import (
    Fused,
    Heads,
    Layer,
    LayerSlots,
    NativeLayer,
    Norm,
    Pass,
    Rotation,
    RotationMatrices,
    RowRotations,
)
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_kinds import FULL, LIMITS, Windows
from decoder.forward.linear import Linear, product
from decoder.forward.protocol import Ints, Mask
from decoder.forward.taps import Native, Note

ALIGNED = 8
"""Alignment in columns: attention kernels need it for masks, and fast products in half precision for matrices."""


@dataclass(eq=False)
class NativeModel(Native):
    """A model with all weights on one device and in one dtype, for texts of at most `context` tokens. It is both a
    `StaticForward` and a `Forward`, so that trees too large for fixed shapes need no Hugging Face module.
    """

    embedding: Float[Tensor, "V X"]
    layers: Sequence[Layer]
    normalise: Norm
    """The last norm; its affine part is folded into the output head."""
    head: Linear
    rotary: Rotation
    rotation_matrices: RotationMatrices | None
    """Makes rotations for rows in bfloat16, which has no complex numbers; None for other dtypes."""
    heads: Heads
    windows: Windows
    context: int
    own: "NativeModel | None" = None
    """The model with its original layers, if the layers of this form were replaced, for example by Triton kernels."""
    tables: dict[int, Tensor] = field(default_factory=dict)
    """Table of rotations for each store capacity; if layers have windows, the last column holds the positions. All
    tables are kept, since a CUDA graph reads the table with which it was captured.
    """

    def for_a_compiler(self) -> "NativeModel":
        """The same model with layers that torch.compile can compile; it shares the weights."""
        return self.with_layers(_fused)

    def with_layers(self, changed: Callable[[Layer], Layer]) -> "NativeModel":
        """The same model with changed layers, which share the weights; this object itself if no layer changes."""
        layers = [*map(changed, self.layers)]
        if all(after is before for after, before in zip(layers, self.layers, strict=True)):
            return self
        return replace(self, layers=layers, own=self.plain)

    def by_size(self, forms: Mapping[int, "NativeModel"]) -> "NativeModel":
        """The same model, whose passes choose one of `forms` by their number of rows. A key is the largest number for
        its form; the form with the largest key computes larger passes too.
        """
        if len(set(forms.values())) == 1:
            return next(iter(forms.values()))
        layers = zip(*(forms[rows].layers for rows in sorted(forms)), strict=True)
        each = [LayerBySize(dict(zip(sorted(forms), of_one, strict=True))) for of_one in layers]
        return replace(self, layers=each, own=self.plain)

    def noting(self, notes: Mapping[int, Note]) -> "NativeModel":
        layers = list(self.layers)
        for number, note in notes.items():
            layers[number] = _noted(note, layers[number])
        return replace(self, layers=layers, own=None)

    @property
    def plain(self) -> "NativeModel":
        """The same model with its original layers."""
        return self.own or self

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def width(self) -> int:
        return self.embedding.shape[1]

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
        """Rows after all layers; `biases` has, for each layer type, the bias of the scores of the first M slots."""
        visible = next(iter(biases.values())).shape[1]
        given = Pass(
            rotation=rotation,
            new=[LayerSlots(store, layer, slots) for layer in range(len(store))],
            keys=store[:, 0, :, :visible].unbind(0),
            values=store[:, 1, :, :visible].unbind(0),
            biases=[biases[kind] for kind in self.windows.layers],
            row_rotations=RowRotations(self.rotation_matrices, rotation.expand(len(tokens), -1, -1, -1))
            if self.rotation_matrices
            else None,
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

    def with_hidden(
        self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, first_logits: int = 0
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


def windowed(
    bias: Float[Tensor, "N M"], queries: Int[Tensor, "N"], keys: Int[Tensor, "M"], windows: Windows
) -> Mapping[str, Float[Tensor, "N M"]]:
    """For each layer type, `bias` with slots outside the window hidden; `queries` and `keys` are positions."""
    hidden = torch.finfo(bias.dtype).min
    limited = {
        kind: bias.masked_fill(~LIMITS[kind].within(queries, keys, size), hidden)
        for kind, size in windows.sizes.items()
    }
    return {kind: limited.get(kind, bias) for kind in dict.fromkeys(windows.layers)}


def windowed_by_slot(
    bias: Float[Tensor, "N M"], queries: Int[Tensor, "N"], windows: Windows
) -> Mapping[str, Float[Tensor, "N M"]]:
    """`windowed` with slot numbers as positions of keys, for sliding windows longer than any tree is deep. A drafted
    row's slot number may exceed its position, but the windows of all its descendants contain both, so masks are equal.
    """
    return windowed(bias, queries, torch.arange(bias.shape[1], device=bias.device), windows)


def aligned(rows: int) -> int:
    return -(-rows // ALIGNED) * ALIGNED


def _noted(note: Note, layer: Layer) -> Layer:
    def noted(rows: Tensor, given: Pass, index: int) -> Tensor:
        note(rows, given, index)
        return layer(rows, given, index)

    return noted


@dataclass(frozen=True)
class LayerBySize:
    """A layer with several forms; the number of rows in a pass decides which form computes the pass."""

    forms: Mapping[int, Layer]
    """Forms by their largest number of rows, ascending; the last form computes all larger passes too."""

    def __call__(self, rows: Float[Tensor, "N X"], given: Pass, index: int) -> Float[Tensor, "N X"]:
        fitting = (form for most, form in self.forms.items() if most >= len(rows))
        return next(fitting, self.last)(rows, given, index)

    @property
    def last(self) -> Layer:
        return list(self.forms.values())[-1]


def _fused(layer: Layer) -> Layer:
    one = layer.last if isinstance(layer, LayerBySize) else layer
    return Fused(one) if isinstance(one, NativeLayer) else one
