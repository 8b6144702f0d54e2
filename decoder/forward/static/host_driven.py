"""Passes that the host drives, by the weights that graphs read: rules that outgrow fixed shapes need no module."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.static.layers import LeanStatic

ALIGNED = 8
"""Kernels of attention want so many columns of a mask at a time."""


class LeanHost:
    """A `decoder.forward.protocol.Forward`."""

    def __init__(self, form: LeanStatic) -> None:
        self.form = form
        """What graphs run by."""

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return KvCache(self.form.rows(aligned(capacity)), self.form.rotation_table.width)

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
        rotation = self.form.rotation_table.at(positions)
        slots = torch.arange(first, end, device=store.device)
        given = torch.tensor(tokens, device=store.device)
        return self.form.computed(store, given, rotation, slots, bias.to(store.device))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits


def aligned(rows: int) -> int:
    """So many rows, or a few more."""
    return -(-rows // ALIGNED) * ALIGNED
