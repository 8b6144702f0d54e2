"""Passes of fixed shape by Hugging Face modules. Independent of drafting and verification."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.errors import PairError
from decoder.forward.families.model import write_slots
from decoder.forward.families.native import windowed_by_slot
from decoder.forward.hf import Layers, ModuleForward
from decoder.forward.layer_kinds import FULL, HOST_ROUNDS, SHAPED, Windows, keeps_states
from decoder.system.device import without_gradients


class ModuleStatic(ModuleForward):
    """A static form by a Hugging Face module; `reason` states why no faster form is used."""

    def __init__(self, module: Any, reason: str = "") -> None:
        """Raises PairError for layers with states, or with keys and values of several shapes."""
        if keeps_states(module.config):
            raise PairError(HOST_ROUNDS)
        super().__init__(module)
        self.reason = reason
        cache = self.new_cache(1)
        with without_gradients():
            self.read(cache, [0])
        if cache.parts:
            raise PairError(SHAPED)
        self._shape = cache.store.shape

    @property
    def windows(self) -> Windows:
        return self._windows

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        *before, _, head = self._shape
        return torch.zeros((*before, capacity, head), dtype=self._dtype, device=self._device)

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Int[Tensor, "N"]:  # noqa: ARG002 - required by the protocol
        """Returns the positions themselves, since a module computes its own rotations."""
        return positions

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Int[Tensor, "N"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        biases = windowed_by_slot(bias, rotation, self.windows) if self.windows.sizes else {FULL: bias}
        layers = _SlotLayers(store, slots, rotation, bias.shape[1])
        logits: Tensor = self.output(tokens, rotation, biases, layers).logits[0]
        return logits


class _SlotLayers(Layers):
    """Writes new rows to slots. The number of cached rows is 0, since the module gets positions and mask instead."""

    def __init__(
        self, store: Float[Tensor, "L 2 H S D"], slots: Int[Tensor, "N"], positions: Int[Tensor, "N"], visible: int
    ) -> None:
        super().__init__(0, positions)
        self._store, self._slots, self._visible = store, slots, visible

    def put(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        write_slots(self._store, layer, self._slots, torch.stack((keys, values)))
        visible = self._store[layer, :, :, : self._visible]
        return visible[0], visible[1]
