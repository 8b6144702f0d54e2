"""A native model as the engine runs it: rows in, logits out. The families differ only in their layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.cpu.packed import Linear
from decoder.forward.families.attention import Attention, Pass, Rotation, gathered, prepare
from decoder.forward.families.layers import Heads
from decoder.forward.kv_cache import KvCache

Layer = Callable[[Tensor, Pass, int], Tensor]
"""(rows, what all layers share, number of this one) -> rows; may overwrite those it was given."""


@dataclass(frozen=True)
class NativeModel:
    """All weights of a model, laid out for a CPU."""

    embedding: Float[Tensor, "V X"]
    layers: Sequence[Layer]
    normalise: Callable[[Tensor], Tensor]
    """The last norm without its affine part, which is folded into the head."""
    head: Linear
    rotation: Rotation
    rows: torch.dtype
    """Of everything but matrices."""
    heads: Heads
    attention: Attention = gathered
    stored: torch.dtype | None = None
    """Of keys and values; None: as `rows`."""

    def new_cache(self, capacity: int) -> KvCache:
        """An empty cache of `capacity` rows."""
        return KvCache(self.store(capacity, self.stored or self.rows))

    def store(self, capacity: int, dtype: torch.dtype) -> Float[Tensor, "L 2 H S D"]:
        """Zeros for keys and values of so many rows."""
        shape = (len(self.layers), 2, self.heads.heads, capacity, self.heads.width)
        return torch.zeros(shape, dtype=dtype, device=self.embedding.device)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """Logits of N new rows, which are appended to the cache; see `LanguageModel.forward`."""
        return self._logits(self._hidden(cache, tokens, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """Appends and commits plain text, and returns the logits after its last token."""
        positions = range(cache.length, cache.length + len(tokens))
        rows = self._hidden(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))
        cache.keep(positions)
        return self._logits(rows[-1:])[0]

    def _hidden(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N X"]:
        given = prepare(cache, self.rotation, positions, visible, self.heads.groups, self.attention)
        return self.through(torch.tensor(tokens), given, self.rows)

    def through(self, tokens: Int[Tensor, "N"], given: Pass, dtype: torch.dtype) -> Float[Tensor, "N X"]:
        """Rows of a dtype after all layers."""
        rows = self.embedding.index_select(0, tokens).to(dtype)
        for index, layer in enumerate(self.layers):
            rows = layer(rows, given, index)
        return rows

    def _logits(self, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        return self.head(self.normalise(rows)).to(self.rows)
