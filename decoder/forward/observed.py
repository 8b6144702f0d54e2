"""A native model that keeps the hidden rows of its latest pass, as input for predictors of acceptance.

Every pass computes these rows anyway, so keeping a reference costs nothing. Knows no predictors.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.compiled.model import CompiledModel
from decoder.forward.kv_cache import KvCache
from decoder.forward.static.layers import NativeStatic


class Observed:
    """A `Forward` that keeps the hidden rows of its latest pass."""

    def __init__(self, model: NativeStatic | CompiledModel) -> None:
        self.latest: Float[Tensor, "N X"] = model.embedding[:0]
        """Hidden rows of the latest pass, after all layers and before the last norm.

        If plain text was read in chunks, these are only the rows of the last chunk.
        """
        self._model = model

    @property
    def width(self) -> int:
        """Width of a hidden row."""
        return self._model.embedding.shape[1]

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return self._model.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        self.latest, logits = self._model.with_hidden(cache, tokens, positions, visible)
        return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        positions = range(cache.length, cache.length + len(tokens))
        visible = np.tri(len(tokens), dtype=np.bool_)
        self.latest, logits = self._model.with_hidden(cache, tokens, positions, visible, len(tokens) - 1)
        cache.keep(positions)
        return logits[0]
