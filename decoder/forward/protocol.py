"""Interface by which the engine runs a model; all implementations of one model give the same logits."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache


class Forward(Protocol):
    """A forward form of a model: rows in, logits out. A cache belongs to the form that made it."""

    def new_cache(self, capacity: int) -> KvCache:
        """An empty cache of `capacity` rows."""

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `LanguageModel.forward`."""

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Appends and commits plain text, and returns the logits after its last token."""


class TensorParallelGroup(Protocol):
    """Processes that run one model together, each with a shard of its weights."""

    devices: Sequence[str]
    """Device of each rank, for example cuda:0."""

    def peak_bytes(self) -> list[int]:
        """Peak memory of each rank so far, in bytes."""
