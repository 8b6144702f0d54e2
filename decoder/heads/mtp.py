"""A target's multi-token prediction (MTP) layer as a head. A token's normalised embedding and the normalised state at
the position before it are projected together, then pass through a one-layer Hugging Face module: a decoder layer of the
target's family and a final norm. The result is the state for the next row, and the input of the target's output head.
Source: DeepSeek-V3 (arXiv 2412.19437), section 2.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.hf import ModuleForward
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Ints, Mask
from decoder.heads.parts import GuidedHead

Rows = Callable[[Tensor], Tensor]


@dataclass(eq=False)
class MtpHead(GuidedHead):
    """An MTP layer with its weights, and the target's embedding and output head."""

    name: str
    target_layers: tuple[int, ...]
    """The target's number of layers, which stands for the target's state after the final norm; see `LayerStates`."""
    layer: ModuleForward = field(repr=False)
    """Decoder layer and final norm, without an output head."""
    embed: Rows = field(repr=False)
    """The target's embedding of token ids."""
    embedding_norm: Rows = field(repr=False)
    state_norm: Rows = field(repr=False)
    projection: Float[Tensor, "X 2X"] = field(repr=False)
    """Weight of the projection of [embedding | state] to the input rows of the decoder layer."""
    output: nn.Linear = field(repr=False)
    """The target's output head, in the target's dtype."""
    kind: str = "MTP layer"

    @property
    def dtype(self) -> torch.dtype:
        return self.projection.dtype

    def new_cache(self, capacity: int) -> KvCache:
        return self.layer.new_cache(capacity)

    def no_states(self, count: int) -> Float[Tensor, "N X"]:
        return self.projection.new_zeros((count, self.projection.shape[0]))

    def fused(self, states: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        return states.to(self.projection)

    def forward(
        self, cache: KvCache, tokens: Ints, hidden: Float[Tensor, "N X"], positions: Ints, visible: Mask
    ) -> Float[Tensor, "N X"]:
        embedded = self.embed(torch.tensor(tokens, device=hidden.device)).to(hidden)
        rows = torch.cat([self.embedding_norm(embedded), self.state_norm(hidden)], -1)
        call = partial(self.layer.output, inputs_embeds=functional.linear(rows, self.projection)[None])
        output: Tensor = self.layer.through(cache, tokens, positions, visible, call).last_hidden_state[0]
        return output

    def logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        logits: Tensor = self.output(outputs.to(self.output.weight.dtype))
        return logits
