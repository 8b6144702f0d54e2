"""An EAGLE-3 head as a `Forward` that needs no hidden states, for timing its passes; its predictions are meaningless.

Knows no target: hidden states are replaced by zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.eagle3.head import Head
from decoder.forward.kv_cache import KvCache


@dataclass(frozen=True)
class Unguided:
    """An EAGLE-3 head whose hidden states are zeros, so that its passes can be timed without a target."""

    head: Head

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return self.head.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`; takes the same time as a pass over drafted rows."""
        before = self.head.embedding.new_zeros((len(tokens), self.head.embedding.shape[1]))
        return self.head.logits(self.head.forward(cache, tokens, before, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`; takes the same time as a pass over text."""
        shape = self.head.shape
        states = self.head.embedding.new_zeros((len(tokens), shape.states * shape.target_width))
        positions = range(cache.length, cache.length + len(tokens))
        causal = np.tri(len(tokens), dtype=np.bool_)
        outputs = self.head.forward(cache, tokens, self.head.fused(states), positions, causal)
        cache.keep(positions)
        return self.head.logits(outputs[-1:])[0]
