"""Interfaces of a forward form of a model, and of tensor-parallel processes.

All forward forms of a model give the same logits, up to rounding errors.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache


class Forward(Protocol):
    """A forward form of a model: computes logits from rows. It can only use caches made by its own `new_cache`."""

    def new_cache(self, capacity: int) -> KvCache:
        """An empty KV cache of `capacity` rows."""

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `LanguageModel.forward`."""

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Appends and commits plain text, and returns the logits after its last token."""


class TensorParallelGroup(Protocol):
    """Tensor-parallel processes of one model, each with a shard of its weights."""

    devices: Sequence[str]
    """Device of each rank, for example cuda:0."""

    def peak_bytes(self) -> list[int]:
        """Peak memory of each rank so far, in bytes."""
