"""Drafting heads as `Forward`s without a target, for timing their passes; their predictions are meaningless.

The target's hidden states are replaced by zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward
from decoder.heads.dflash import Block, BlockHead
from decoder.heads.eagle3 import Head
from decoder.heads.protocol import GuidedHead, StatesReader


def timed(head: StatesReader) -> Forward:
    """The head as a `Forward`; raises TypeError if its kind is unknown."""
    if isinstance(head, BlockHead):
        return _Blocks(head)
    if isinstance(head, Head) and head.shape.parallel:
        return _Parallel(head)
    if isinstance(head, GuidedHead):
        return _Guided(head)
    raise TypeError(f"{type(head).__name__} is not a known kind of drafting head")


@dataclass(frozen=True)
class _Guided:
    """An EAGLE-3 head or MTP layer: `read` takes the time of a pass over text, `forward` of one over drafted rows."""

    head: GuidedHead

    def new_cache(self, capacity: int) -> KvCache:
        return self.head.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        before = self.head.no_hidden(len(tokens))
        return self.head.logits(self.head.forward(cache, tokens, before, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        hidden = self.head.fused(self.head.no_states(len(tokens)))
        positions = range(cache.length, cache.length + len(tokens))
        outputs = self.head.forward(cache, tokens, hidden, positions, np.tri(len(tokens), dtype=np.bool_))
        cache.keep(positions)
        return self.head.logits(outputs[-1:])[0]


@dataclass
class _Parallel:
    """A P-EAGLE head: `read` takes the time of a pass over text and mask rows. `forward` runs no pass, and returns one
    row of logits of the latest `read` for all nodes of a level.
    """

    head: Head
    levels: Float[Tensor, "K V"] = field(default_factory=lambda: torch.empty(0))

    def new_cache(self, capacity: int) -> KvCache:
        return self.head.new_cache(capacity + self.head.shape.guesses)

    def forward(self, *_: object) -> Float[Tensor, "1 V"]:
        return self.levels[-1:]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        masks, hidden = self.head.masks
        given = torch.cat([self.head.fused(self.head.no_states(len(tokens))), hidden])
        rows = range(cache.length, cache.length + len(given))
        outputs = self.head.forward(cache, [*tokens, *masks], given, rows, np.tri(len(given), dtype=np.bool_))
        cache.keep(rows[: len(tokens)])
        self.levels = self.head.logits(outputs[len(tokens) - 1 :])
        return self.levels[0]


@dataclass
class _Blocks:
    """A DFlash head: `read` takes the time of reading a text and computing the block after it, `forward` the time of
    the correction of one level of the latest block.
    """

    head: BlockHead
    latest: list[Block] = field(default_factory=list)

    def new_cache(self, capacity: int) -> KvCache:
        return self.head.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        del cache, positions, visible
        (block,) = self.latest
        return self.head.logits(block.rows[0], tokens, block.memory.expand(len(tokens), -1))[0]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        self.head.read(cache, self.head.fc.weight.new_zeros((len(tokens), self.head.fc.in_features)))
        self.latest = self.head.blocks(cache, tokens[-1:])
        (block,) = self.latest
        return self.head.logits(block.rows[0], [block.anchor], block.memory)[0][0]
