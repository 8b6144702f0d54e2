"""Passes of fixed shape by the layers of `decoder.forward.families`, in half as many operations as a module has."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.families.attention import Pass, fused
from decoder.forward.families.model import NativeModel
from decoder.forward.kv_cache import KvCache
from decoder.forward.static.kv_write import write
from decoder.forward.static.traceable import for_a_compiler

ALIGNED = 8
"""Kernels of attention want so many columns of a mask at a time."""


class _Place:
    """Where one layer's new keys and values go."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], layer: int, slots: Int[Tensor, "N"]) -> None:
        self._store, self._layer, self._slots = store, layer, slots

    def copy_(self, src: Float[Tensor, "2 H N D"], /) -> None:
        """Takes over the rows."""
        write(self._store, self._layer, self._slots, src)


class NativeStatic:
    """A family that `decoder.forward.families.registry` knows: half as many operations as its module has.

    Also a `Forward` for passes that the host drives: rules that outgrow fixed shapes need no module.
    """

    def __init__(self, model: NativeModel, context: int) -> None:
        """Prepares a model.

        Args:
            model: Read with `PublicLinear`.
            context: Tokens that it can hold.
        """
        self._model = model
        self._context = context
        # Rotations are complex products, which bfloat16 has none of; there, only what is multiplied by weights is half.
        self._rows = torch.float32 if model.embedding.dtype is torch.bfloat16 else model.embedding.dtype
        self._rotations: dict[int, Tensor] = {}
        """By capacity; a graph goes on reading the one that it was captured with."""

    def for_a_compiler(self) -> "NativeStatic":
        """The same weights over the same keys and values, in layers that a compiler can read."""
        return NativeStatic(for_a_compiler(self._model), self._context)

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """See `StaticForward`."""
        if capacity not in self._rotations:
            self._rotations[capacity] = self._model.rotation.at(range(min(capacity, self._context)))
        return self._model.store(capacity, self._model.embedding.dtype)

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
            attention=fused,
        )
        return model.head(model.normalise(model.through(tokens, given, self._rows)))

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return KvCache(self._model.store(aligned(capacity), self._model.embedding.dtype))

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        store, first, rows = cache.store, cache.used, len(tokens)
        cache.used = end = first + rows
        bias = torch.zeros((rows, min(aligned(end), store.shape[3])), dtype=store.dtype)
        hidden = torch.from_numpy(~visible)
        bias[:, end - visible.shape[1] : end].masked_fill_(hidden, torch.finfo(store.dtype).min)
        bias[:, end:] = torch.finfo(store.dtype).min
        rotation = self._model.rotation.at(positions)
        slots = torch.arange(first, end, device=store.device)
        given = torch.tensor(tokens, device=store.device)
        return self.computed(store, given, rotation, slots, bias.to(store.device))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits


def aligned(rows: int) -> int:
    """So many rows, or a few more."""
    return -(-rows // ALIGNED) * ALIGNED
