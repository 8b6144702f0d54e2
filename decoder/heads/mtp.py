"""A target's multi-token prediction (MTP) layer as a head that drafts from the target's state after its final norm.

A row is a projection of the normalised embedding of a token and the normalised state at the position before the token.
The row passes through a decoder layer of the target's family and a final norm. The result is the state for the next
row, and the target's output head predicts from it. Decoder layer and final norm form a one-layer Hugging Face module of
the target's family, so attention, experts and windows are the family's own. Source: DeepSeek-V3 (arXiv 2412.19437),
section 2.2. Knows neither texts nor trees.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.hf import ModuleForward
from decoder.forward.kv_cache import KvCache

Rows = Callable[[Tensor], Tensor]
"""A module that maps rows to rows."""


@dataclass(frozen=True, eq=False)
class MtpHead:
    """An MTP layer with its weights, and the target's embedding and output head; all on one device."""

    name: str
    """The word "mtp", as in `--draft mtp`."""
    target_layers: tuple[int, ...]
    """One number: how many layers the target has. It stands for the target's state after its final norm; see
    `LayerStates`.
    """
    layer: ModuleForward = field(repr=False)
    """Decoder layer and final norm, as a module without an output head."""
    embed: Rows = field(repr=False)
    """The target's embedding of token ids."""
    embedding_norm: Rows = field(repr=False)
    state_norm: Rows = field(repr=False)
    projection: Float[Tensor, "X 2X"] = field(repr=False)
    """Weight of the projection of embedding and state, in this order, to the rows that enter the decoder layer."""
    output: nn.Linear = field(repr=False)
    """The target's output head, in the target's dtype."""
    kind: ClassVar[str] = "MTP layer"
    """See `GuidedHead`."""

    @property
    def dtype(self) -> torch.dtype:
        return self.projection.dtype

    def new_cache(self, capacity: int) -> KvCache:
        return self.layer.new_cache(capacity)

    def no_states(self, count: int) -> Float[Tensor, "N X"]:
        return self.projection.new_zeros((count, self.projection.shape[0]))

    def no_hidden(self, count: int) -> Float[Tensor, "N X"]:
        return self.no_states(count)

    def fused(self, states: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """See `GuidedHead`; the hidden states are the target's states, unchanged."""
        return states.to(self.projection)

    def forward(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        hidden: Float[Tensor, "N X"],
        positions: Sequence[int],
        visible: NDArray[np.bool_],
    ) -> Float[Tensor, "N X"]:
        """See `GuidedHead`; the outputs are rows after the layer's final norm."""
        embedded = self.embed(torch.tensor(tokens, device=hidden.device)).to(hidden)
        rows = torch.cat([self.embedding_norm(embedded), self.state_norm(hidden)], -1)
        call = partial(self.layer.output, inputs_embeds=functional.linear(rows, self.projection)[None])
        output: Tensor = self.layer.through(cache, tokens, positions, visible, call).last_hidden_state[0]
        return output

    def carried(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        return outputs

    def logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        logits: Tensor = self.output(outputs.to(self.output.weight.dtype))
        return logits
