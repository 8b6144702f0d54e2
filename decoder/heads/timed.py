"""Drafting heads as `Forward`s that need no target, for timing their passes; their predictions are meaningless.

Zeros replace the target's hidden states.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward, Ints, Mask
from decoder.heads.dflash import BlockHead, DraftBlock
from decoder.heads.eagle3 import Head
from decoder.heads.parts import GuidedHead, StatesReader


def timed(head: StatesReader) -> Forward:
    """Raises TypeError if the kind of the head is unknown."""
    if isinstance(head, BlockHead):
        return _Blocks(head)
    if isinstance(head, Head) and head.shape.parallel:
        return _Parallel(head)
    if isinstance(head, GuidedHead):
        return _Guided(head)
    raise TypeError(f"{type(head).__name__} is not a known kind of drafting head")


class _Guided(Forward):
    """An EAGLE-3 head or MTP layer: `read` takes as long as a pass over text, `forward` as a pass over drafted rows."""

    def __init__(self, head: GuidedHead) -> None:
        self._head = head

    def new_cache(self, capacity: int) -> KvCache:
        return self._head.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        before = self._head.no_hidden(len(tokens))
        return self._head.logits(self._head.forward(cache, tokens, before, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return self._head.logits(self._outputs(cache, tokens, [], self._head.no_hidden(0))[-1:])[0]

    def _outputs(
        self, cache: KvCache, tokens: Sequence[int], masks: Sequence[int], hidden: Float[Tensor, "M X"]
    ) -> Float[Tensor, "N X"]:
        """Outputs of a text, whose rows are kept in the cache, then of mask rows, which are not kept."""
        given = torch.cat([self._head.fused(self._head.no_states(len(tokens))), hidden])
        rows = range(cache.length, cache.length + len(given))
        outputs = self._head.forward(cache, [*tokens, *masks], given, rows, np.tri(len(given), dtype=np.bool_))
        cache.keep(rows[: len(tokens)])
        return outputs


class _Parallel(_Guided):
    """A P-EAGLE head: `forward` runs no pass, but returns a row of logits of the latest `read` for a whole level."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._masks, self._guesses = head.masks, head.shape.guesses
        self._levels: Float[Tensor, "K V"] = torch.empty(0)

    def new_cache(self, capacity: int) -> KvCache:
        return super().new_cache(capacity + self._guesses)

    def forward(self, *_: object) -> Float[Tensor, "1 V"]:
        return self._levels[-1:]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        self._levels = self._head.logits(self._outputs(cache, tokens, *self._masks)[len(tokens) - 1 :])
        return self._levels[0]


class _Blocks(Forward):
    """A DFlash head: `read` takes as long as reading a text and its block, `forward` as correcting one level."""

    def __init__(self, head: BlockHead) -> None:
        self._head = head
        self._latest: list[DraftBlock] = []

    def new_cache(self, capacity: int) -> KvCache:
        return self._head.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        del cache, positions, visible
        (block,) = self._latest
        return self._head.logits(block.rows[0], tokens, block.memory.expand(len(tokens), -1))[0]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        self._head.read(cache, self._head.fc.weight.new_zeros((len(tokens), self._head.fc.in_features)))
        self._latest = self._head.blocks(cache, tokens[-1:])
        (block,) = self._latest
        return self._head.logits(block.rows[0], [block.anchor], block.memory)[0][0]
