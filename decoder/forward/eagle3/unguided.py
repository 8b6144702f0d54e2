"""EAGLE-3 heads, P-EAGLE heads and MTP layers as `Forward`s, for timing passes; their predictions are meaningless.

Knows no target: hidden states are replaced by zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.eagle3.head import Head
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import GuidedHead


@dataclass(frozen=True)
class Unguided:
    """An EAGLE-3 head or MTP layer whose hidden states are zeros, so that its passes can be timed without a target."""

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


class UnguidedParallel:
    """A P-EAGLE head whose hidden states are zeros. `read` runs a pass; `forward` runs no pass, and returns logits of
    the latest `read`.
    """

    def __init__(self, head: Head) -> None:
        self._head = head
        self._levels = head.no_hidden(0)
        """Logits of all levels after the latest text."""

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return self._head.new_cache(capacity + self._head.shape.guesses)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`; returns one row of logits for all nodes of a level. `read` must have been called before."""
        del cache, tokens, positions, visible
        return self._levels[-1:]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`; takes the same time as a pass over text and mask rows."""
        masks, hidden = self._head.masks
        given = torch.cat([self._head.fused(self._head.no_states(len(tokens))), hidden])
        rows = range(cache.length, cache.length + len(given))
        visible = np.tri(len(given), dtype=np.bool_)
        outputs = self._head.forward(cache, [*tokens, *masks], given, rows, visible)
        cache.keep(rows[: len(tokens)])
        self._levels = self._head.logits(outputs[len(tokens) - 1 :])
        return self._levels[0]
