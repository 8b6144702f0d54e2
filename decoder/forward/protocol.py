"""Interfaces of forward forms, whose logits are equal up to rounding errors, and of tensor-parallel processes."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache

Ints = Sequence[int]
Mask = NDArray[np.bool_]
"""Attention mask, shape (N, M), of N new rows and the last M rows; see `LanguageModel.forward`."""


class Forward(Protocol):
    """A forward form computes logits of tokens. It accepts only caches that its own `new_cache` has made."""

    @abstractmethod
    def new_cache(self, capacity: int) -> KvCache: ...

    @abstractmethod
    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        """See `LanguageModel.forward`."""

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Appends tokens to the committed text; returns the logits after the last token."""
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits


class Wrapped(Forward):
    """A form whose passes another form, `inner`, computes; subclasses override methods."""

    inner: Forward

    def new_cache(self, capacity: int) -> KvCache:
        return self.inner.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        return self.inner.forward(cache, tokens, positions, visible)

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return self.inner.read(cache, tokens)


class TensorParallelGroup(Protocol):
    """Tensor-parallel processes of one model, each with a shard of its weights."""

    devices: Sequence[str]
    """Device of each rank, for example cuda:0."""

    def peak_bytes(self) -> list[int]:
        """Peak memory of each rank so far."""
