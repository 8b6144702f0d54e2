"""Passes of fixed shape by the layers of `decoder.forward.families`, in half as many operations as a module has."""

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from torch.nn import functional

from decoder.forward.families.attention import Pass, Rotation
from decoder.forward.families.model import LeanModel
from decoder.forward.static.kv_write import write
from decoder.forward.static.traceable import for_a_compiler


class DeviceLinear:
    """A matrix where the model is, in the model's dtype, whatever that of the rows is."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight = weight.to(dtype)
        self._bias = None if bias is None else bias.to(dtype)

    def __call__(self, rows: Tensor) -> Tensor:
        """See `decoder.forward.cpu.packed.Linear`."""
        return functional.linear(rows.to(self._weight.dtype), self._weight, self._bias)

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `decoder.forward.cpu.packed.Linear`."""
        if self._bias is not None or residual.dtype is not self._weight.dtype:
            return residual.add_(self(rows))
        return residual.addmm_(rows, self._weight.t())


class _Place:
    """Where one layer's new keys and values go."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], layer: int, slots: Int[Tensor, "N"]) -> None:
        self._store, self._layer, self._slots = store, layer, slots

    def copy_(self, src: Float[Tensor, "2 H N D"], /) -> None:
        """Takes over the rows."""
        write(self._store, self._layer, self._slots, src)


class LeanStatic:
    """A family that `decoder.forward.families.registry` knows: half as many operations as its module has."""

    def __init__(self, model: LeanModel, context: int) -> None:
        """Prepares a model.

        Args:
            model: Read with `DeviceLinear`.
            context: Tokens that it can hold.
        """
        self._model = model
        self._context = context
        # Rotations are complex products, which bfloat16 has none of; there, only what is multiplied by weights is half.
        self._rows = torch.float32 if model.embedding.dtype is torch.bfloat16 else model.embedding.dtype
        self._rotations: dict[int, Tensor] = {}
        """By capacity; a graph goes on reading the one that it was captured with."""

    @property
    def rotation_table(self) -> Rotation:
        """The rotary positions of all texts."""
        return self._model.rotation

    def for_a_compiler(self) -> "LeanStatic":
        """The same weights over the same keys and values, in layers that a compiler can read."""
        return LeanStatic(for_a_compiler(self._model), self._context)

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """See `StaticForward`."""
        if capacity not in self._rotations:
            self._rotations[capacity] = self._model.rotation.at(range(min(capacity, self._context)))
        return self.rows(capacity)

    def rows(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """Zeros for so many rows, whose positions are told by others."""
        model = self._model
        shape = (len(model.layers), 2, model.heads.heads, capacity, model.heads.width)
        return torch.zeros(shape, dtype=model.embedding.dtype, device=model.embedding.device)

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Complex[Tensor, "N 1 1 R"]:
        """See `StaticForward`."""
        return self._rotations[store.shape[3]].index_select(0, positions)

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Complex[Tensor, "N 1 1 R"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """See `StaticForward`."""
        model, visible = self._model, bias.shape[1]
        given = Pass(
            rotation=rotation,
            new=[_Place(store, layer, slots) for layer in range(len(store))],
            keys=store[:, 0, :, :visible].transpose(2, 3).unbind(0),
            values=store[:, 1, :, :visible].unbind(0),
            bias=bias.repeat(model.heads.groups, 1) if model.heads.groups > 1 else bias,
            attention=attended,
        )
        rows = model.embedding.index_select(0, tokens).to(self._rows)
        for index, layer in enumerate(model.layers):
            rows = layer(rows, given, index)
        return model.head(model.normalise(rows))


def attended(
    queries: Float[Tensor, "H GN D"],
    keys: Float[Tensor, "H D S"],
    values: Float[Tensor, "H S D"],
    bias: Float[Tensor, "GN S"] | None,
) -> Float[Tensor, "H GN D"]:
    """What scaled queries gather, in one call, in the dtype of keys and values."""
    found = functional.scaled_dot_product_attention(
        queries.to(values.dtype)[None], keys.transpose(1, 2)[None], values[None], bias, scale=1.0
    )
    return found[0]
