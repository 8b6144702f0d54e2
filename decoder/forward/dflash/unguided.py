"""A DFlash head as a `Forward` that needs no hidden states, for timing its passes; its predictions are meaningless.

`read` takes as long as reading a text and computing a block, and `forward` takes as long as the correction of one
level. Knows no target: hidden states are replaced by zeros.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.dflash.head import Block, BlockHead
from decoder.forward.kv_cache import KvCache


class UnguidedBlocks:
    """A DFlash head whose hidden states are zeros, so that its passes can be timed without a target."""

    def __init__(self, head: BlockHead) -> None:
        self._head = head
        self._block: Block | None = None
        """The block that begins at the last token that was read."""

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return self._head.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`; takes the same time as the correction of one level. `read` must have been called before."""
        del cache, positions, visible
        assert self._block is not None, "text is read first"  # noqa: S101 - a programmer's mistake
        memory = self._block.memory.expand(len(tokens), -1)
        return self._head.logits(self._block.rows[0], tokens, memory)[0]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`; takes the same time as reading this text and computing the block after it."""
        shape = self._head.shape
        self._head.read(cache, self._head.embedding.new_zeros((len(tokens), shape.states * shape.target_width)))
        (block,) = self._head.blocks(cache, tokens[-1:])
        self._block = block
        return self._head.logits(block.rows[0], [block.anchor], block.memory)[0][0]
