"""What drafting heads are: of all kinds, and those that draft level by level."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.kv_cache import Ints, KvCache, Mask


class StatesReader(ABC):
    """A drafting head: a network that drafts from the layer states of one target, in place of a draft model."""

    name: str
    """Hub id or folder name of the head; "mtp" for the target's own MTP layer, as in `--draft mtp`."""
    kind: str
    """Kind of the head in words, for example "EAGLE-3 head"."""
    target_layers: tuple[int, ...]
    """Numbers of the target layers whose inputs the head reads, ascending; see `LayerStates`."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...


class GuidedHead(StatesReader):
    """A head that drafts level by level: an EAGLE-3 head, or the target's own MTP layer.

    A row combines a token with the hidden state at the position before it: the target's states for tokens of the text,
    the head's own output for drafted tokens.
    """

    @abstractmethod
    def new_cache(self, capacity: int) -> KvCache: ...

    @abstractmethod
    def no_states(self, count: int) -> Float[Tensor, "N Y"]:
        """Zeros in place of the target's states at `count` tokens."""

    def no_hidden(self, count: int) -> Float[Tensor, "N X"]:
        """Zeros in place of the hidden states of `count` rows."""
        return self.no_states(count)

    @abstractmethod
    def fused(self, states: Float[Tensor, "N Y"]) -> Float[Tensor, "N X"]:
        """Hidden states of a text; each row is computed from the concatenated target states at one token."""

    @abstractmethod
    def forward(
        self, cache: KvCache, tokens: Ints, hidden: Float[Tensor, "N X"], positions: Ints, visible: Mask
    ) -> Float[Tensor, "N X"]:
        """Outputs for N new rows, which are appended to the cache.

        Args:
            cache: The head's KV cache; all of its committed rows are visible to every new row.
            tokens: Token ids of the new rows.
            hidden: Hidden state at the position before each token: `fused` target states, or `carried` rows of the
                head.
            positions: Text position of each hidden state: the position of the row's token minus 1; siblings have the
                same position.
            visible: Shape (N, M): which of the last M rows, drafted and new, each new row attends to.
        """

    def carried(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """Hidden states for the input of drafted rows, computed from the outputs at the parents of these rows."""
        return outputs

    @abstractmethod
    def logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        """Logits of the token after each row, from the rows' outputs; columns are the target's token ids."""
