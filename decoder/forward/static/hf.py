"""Passes of fixed shape by any Hugging Face module. Knows nothing of what is drafted or verified."""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache

from decoder.device import without_gradients
from decoder.forward.static.kv_write import write

if TYPE_CHECKING:
    from decoder.forward.language_model import LanguageModel


class _Slots(Cache):
    """A cache whose new rows go into given slots."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], slots: Int[Tensor, "N"], visible: int) -> None:
        super().__init__(layers=[])
        self._store, self._slots, self._visible = store, slots, visible

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes this layer's new rows and returns what attention may read."""
        write(self._store, layer_idx, self._slots, torch.stack((key_states[0], value_states[0])))
        keys, values = self._store[layer_idx]
        return keys[None, :, : self._visible], values[None, :, : self._visible]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 - all layers have the same rows
        """Rows before the new ones; positions and mask are given, so nobody goes by it."""
        return 0


class ModuleStatic:
    """Any Hugging Face module."""

    def __init__(self, model: "LanguageModel", reason: str = "") -> None:
        """Takes a model's module.

        Args:
            model: Holds it.
            reason: Why there is no faster form.
        """
        self.reason = reason
        self._module = model.module
        self._dtype = model.dtype
        with without_gradients():
            cache = model.new_cache(1)
            model.read(cache, [0])
        layers, _, heads, _, head = cache.keys_values().shape
        self._shape = layers, heads, head
        self._device = model.device

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """See `StaticForward`."""
        layers, heads, head = self._shape
        return torch.zeros((layers, 2, heads, capacity, head), dtype=self._dtype, device=self._device)

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Int[Tensor, "N"]:  # noqa: ARG002 - the store is of the protocol
        """The positions themselves: a module knows how to rotate."""
        return positions

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Int[Tensor, "N"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """See `StaticForward`."""
        output = self._module(
            input_ids=tokens[None],
            position_ids=rotation[None],
            attention_mask=bias[None, None],
            past_key_values=_Slots(store, slots, bias.shape[1]),
            use_cache=True,
        )
        logits: Tensor = output.logits[0]
        return logits
