"""Forward passes of fixed shape: what is fed, where it goes and what it sees are tensors, so a graph can replay them.

Nothing here decides anything on the host or reads a number back. Keys and values lie in one tensor that the caller
owns; attention reads its first slots, as many as the bias has columns.
"""

from typing import TYPE_CHECKING, Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import Cache

from decoder.device import has_room
from decoder.lean import LeanModel, reader
from decoder.lean.attention import Pass
from decoder.lean.packed import HALF
from decoder.lean.weights import Arithmetic

if TYPE_CHECKING:
    from decoder.models import LanguageModel


class StaticForward(Protocol):
    """Computes logits of N rows whose keys and values go into given slots."""

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """Keys and values of all layers, zeros: after `empty`, a NaN in a masked slot would poison the output."""

    def __call__(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        positions: Int[Tensor, "N"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """The logits; the first M slots are read under `bias`, after the new rows were written."""


class _Slots(Cache):
    """A cache whose new rows go into given slots."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], slots: Int[Tensor, "N"], visible: int) -> None:
        super().__init__(layers=[])
        self._store, self._slots, self._visible = store, slots, visible

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes this layer's new rows and returns what attention may read."""
        keys, values = self._store[layer_idx]
        keys.index_copy_(1, self._slots, key_states[0].to(keys.dtype))
        values.index_copy_(1, self._slots, value_states[0].to(values.dtype))
        return keys[None, :, : self._visible], values[None, :, : self._visible]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 - all layers have the same rows
        """Rows before the new ones; positions and mask are given, so nobody goes by it."""
        return 0


class ModuleStatic:
    """Any Hugging Face module."""

    def __init__(self, model: "LanguageModel") -> None:
        self._module = model.module
        self._dtype = model.dtype
        cache = model.new_cache(1)
        model.read(cache, [0])
        layers, _, heads, _, head = cache.keys_values().shape
        self._shape = layers, heads, head
        self._device = model.device

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """See `StaticForward`."""
        layers, heads, head = self._shape
        return torch.zeros((layers, 2, heads, capacity, head), dtype=self._dtype, device=self._device)

    def __call__(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        positions: Int[Tensor, "N"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """See `StaticForward`."""
        output = self._module(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=bias[None, None],
            past_key_values=_Slots(store, slots, bias.shape[1]),
            use_cache=True,
        )
        logits: Tensor = output.logits[0]
        return logits


class DeviceLinear:
    """A matrix where the model is, in the model's dtype, whatever that of the rows is."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight = weight.to(dtype)
        self._bias = None if bias is None else bias.to(dtype)

    def __call__(self, rows: Tensor) -> Tensor:
        """See `decoder.lean.packed.Linear`."""
        return functional.linear(rows.to(self._weight.dtype), self._weight, self._bias)

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `decoder.lean.packed.Linear`."""
        if self._bias is not None or residual.dtype is not self._weight.dtype:
            return residual.add_(self(rows))
        return residual.addmm_(rows, self._weight.t())


class _Place:
    """Where one layer's new keys and values go."""

    def __init__(self, layer: Float[Tensor, "2 H S D"], slots: Int[Tensor, "N"]) -> None:
        self._layer, self._slots = layer, slots

    def copy_(self, src: Float[Tensor, "2 H N D"], /) -> None:
        """Takes over the rows."""
        self._layer.index_copy_(2, self._slots, src.to(self._layer.dtype))


class LeanStatic:
    """A family that `decoder.lean` knows: half as many operations as its module has."""

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

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """See `StaticForward`."""
        model = self._model
        if capacity not in self._rotations:
            self._rotations[capacity] = model.rotation.at(range(min(capacity, self._context)))
        shape = (len(model.layers), 2, model.heads, capacity, model.head_width)
        return torch.zeros(shape, dtype=model.embedding.dtype, device=model.embedding.device)

    def __call__(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        positions: Int[Tensor, "N"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """See `StaticForward`."""
        model, visible = self._model, bias.shape[1]
        given = Pass(
            rotation=self._rotations[store.shape[3]].index_select(0, positions),
            new=[_Place(layer, slots) for layer in store],
            keys=store[:, 0, :, :visible].transpose(2, 3).unbind(0),
            values=store[:, 1, :, :visible].unbind(0),
            bias=bias.repeat(model.groups, 1) if model.groups > 1 else bias,
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


@torch.no_grad()
def static_forward(model: "LanguageModel") -> StaticForward:
    """The fastest form of a model; the one that needs its weights twice only where there is room for them."""
    module = model.module
    read = reader(module)
    bytes_needed = sum(weight.nbytes for weight in module.parameters())
    if read is None or not has_room(model.device, 2 * bytes_needed):
        return ModuleStatic(model)
    # Norms are folded in float32; what is computed keeps the model's dtype.
    folded = torch.float32 if model.dtype in HALF else model.dtype
    return LeanStatic(read(Arithmetic(folded, model.dtype, DeviceLinear)), model.context)


def visibility(
    start: Int[Tensor, ""], seen: Bool[Tensor, "N M"] | None, slots: int, dtype: torch.dtype
) -> Float[Tensor, "N S"]:
    """The bias of N rows that see all slots before `start` and of the M from there on what `seen` says, if anything.

    Slot 0 is seen by all: it holds text, and a padded row that saw nothing would compute NaN.
    """
    columns = torch.arange(slots, device=start.device)
    visible = ((columns < start) | (columns == 0))[None]
    if seen is not None:
        places = columns - start
        inside = (places >= 0) & (places < seen.shape[1])
        visible = visible | (seen.index_select(1, places.clamp(0, seen.shape[1] - 1)) & inside)
    bias = torch.zeros(visible.shape, dtype=dtype, device=start.device)
    return bias.masked_fill_(~visible, torch.finfo(dtype).min)
