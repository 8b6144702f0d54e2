"""Passes of fixed shape by any Hugging Face module. Knows nothing of what is drafted or verified."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.device import without_gradients
from decoder.forward.hf import Layers, logits_of
from decoder.forward.static.kv_write import write

if TYPE_CHECKING:
    from decoder.forward.language_model import LanguageModel


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

        def put(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            write(store, layer, slots, torch.stack((keys, values)))
            held = store[layer, :, :, : bias.shape[1]]
            return held[0], held[1]

        # Positions and mask are given, so nobody goes by the number of rows.
        return logits_of(self._module, tokens, rotation, bias, Layers(put, 0))
