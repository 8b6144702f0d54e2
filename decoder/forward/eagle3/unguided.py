"""A head as a `Forward` that needs no hidden states, for timing its passes; its predictions are meaningless.

Knows no target: hidden states are replaced by zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import GuidedHead


@dataclass(frozen=True)
class Unguided:
    """A head whose hidden states are zeros, so that its passes can be timed without a target."""

    head: GuidedHead

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return self.head.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`; takes the same time as a pass over drafted rows."""
        before = self.head.no_hidden(len(tokens))
        return self.head.logits(self.head.forward(cache, tokens, before, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`; takes the same time as a pass over text."""
        hidden = self.head.fused(self.head.no_states(len(tokens)))
        positions = range(cache.length, cache.length + len(tokens))
        outputs = self.head.forward(cache, tokens, hidden, positions, np.tri(len(tokens), dtype=np.bool_))
        cache.keep(positions)
        return self.head.logits(outputs[-1:])[0]
