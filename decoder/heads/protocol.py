"""Interfaces of drafting heads: of all kinds, and of those that draft level by level."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache


class StatesReader(Protocol):
    """A drafting head: a network that drafts from the layer states of one target, in place of a draft model."""

    @property
    def name(self) -> str:
        """Hub id or folder name of the head; "mtp" for the target's own MTP layer, as in `--draft mtp`."""

    @property
    def kind(self) -> str:
        """Kind of the head in words, for example "EAGLE-3 head"."""

    @property
    def target_layers(self) -> tuple[int, ...]:
        """Numbers of the target layers whose inputs the head reads, ascending; see `LayerStates`."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the head's passes."""


@runtime_checkable
class GuidedHead(StatesReader, Protocol):
    """A head that drafts level by level: an EAGLE-3 head, or the target's own MTP layer.

    A row combines a token with the hidden state at the position before it: the target's states for tokens of the text,
    the head's own output for drafted tokens.
    """

    def new_cache(self, capacity: int) -> KvCache:
        """An empty KV cache of `capacity` rows."""

    def no_states(self, count: int) -> Float[Tensor, "N Y"]:
        """Zeros in place of the target's states at `count` tokens."""

    def no_hidden(self, count: int) -> Float[Tensor, "N X"]:
        """Zeros in place of the hidden states of `count` rows."""

    def fused(self, states: Float[Tensor, "N Y"]) -> Float[Tensor, "N X"]:
        """Hidden states of a text; each row is computed from the concatenated target states at one token."""

    def forward(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        hidden: Float[Tensor, "N X"],
        positions: Sequence[int],
        visible: NDArray[np.bool_],
    ) -> Float[Tensor, "N X"]:
        """Outputs for N new rows, which are appended to the cache.

        Args:
            cache: The head's KV cache; all of its committed rows are visible to every new row.
            tokens: Token ids of the new rows, N of them.
            hidden: Hidden state at the position before each token: `fused` target states, or `carried` rows of the
                head.
            positions: Text position of each hidden state: the position of the row's token minus 1; siblings have the
                same position.
            visible: Shape (N, M): which of the last M rows, drafted and new, each new row attends to.
        """

    def carried(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Hidden states for the input of drafted rows, computed from the outputs at the parents of these rows."""

    def logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        """Logits of the token after each row, from the rows' outputs; columns are the target's token ids."""
