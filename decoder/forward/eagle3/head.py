"""Network of an EAGLE-3 or P-EAGLE head in plain torch, on any device, in the head's dtype.

A row combines a token with the hidden state at the position before it: the target's state for tokens of the text, the
head's own output for drafted tokens. As in other models, rows of the text and of the tree are stored in one KV cache
and masked in the same way. Source: EAGLE-3 (arXiv 2503.01840), section 3.1. Knows neither texts nor trees.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from decoder.forward.eagle3.shape import LAYER, MASK, HeadShape
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_parts import gated, over_target_ids, rms_normed, turned, turns
from decoder.forward.output_head import product

Attended = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(number of the layer, queries, keys, values) -> attended values; shapes (H, N, D). There may be fewer heads of keys
and values than of queries.
"""


@dataclass(frozen=True, eq=False)
class Head:
    """An EAGLE-3 or P-EAGLE head with its weights, all on one device and in one dtype."""

    name: str
    """Hub id or folder name."""
    shape: HeadShape
    layers: tuple[int, ...]
    """Numbers of the target layers whose inputs the head reads, ascending."""
    weights: Mapping[str, Tensor] = field(repr=False)
    """Weights by name; see `decoder.forward.eagle3.shape.shapes`."""
    embedding: Float[Tensor, "V X"] = field(repr=False)
    """Input embedding, the head's own or the target's."""
    tokens: Int[Tensor, "D"] | None = field(repr=False)
    """For each token of the head's vocabulary, its id in the target's vocabulary; None if the ids are the same."""

    @property
    def kind(self) -> str:
        """See `StatesReader`."""
        return self.shape.kind

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the head's passes."""
        return self.embedding.dtype

    def new_cache(self, capacity: int) -> KvCache:
        """An empty KV cache of `capacity` rows."""
        arch = self.shape.layer
        size = (self.shape.layers, 2, arch.num_key_value_heads, capacity, arch.head_dim)
        return KvCache(torch.zeros(size, dtype=self.dtype, device=self.embedding.device))

    def no_states(self, count: int) -> Float[Tensor, "N Y"]:
        """See `GuidedHead`."""
        return self.embedding.new_zeros((count, self.shape.states * self.shape.target_width))

    def no_hidden(self, count: int) -> Float[Tensor, "N X"]:
        """See `GuidedHead`."""
        return self.embedding.new_zeros((count, self.embedding.shape[1]))

    def fused(self, states: Float[Tensor, "N Y"]) -> Float[Tensor, "N X"]:
        """See `GuidedHead`."""
        states = states.to(self.embedding)
        if self.shape.fc_norm:
            each = states.chunk(self.shape.states, -1)
            states = torch.cat([self._normed(part, f"fc_norm.{place}") for place, part in enumerate(each)], -1)
        if self.shape.norm_before_fc:
            states = self._normed(states, "input_norm")
        return self._times(states, "fc")

    def forward(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        hidden: Float[Tensor, "N X"],
        positions: Sequence[int],
        visible: NDArray[np.bool_],
    ) -> Float[Tensor, "N X"]:
        """See `GuidedHead`."""
        first, end = cache.used, cache.used + len(tokens)

        def attended(number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            rows_kv = cache.store[number]
            rows_kv[0, :, first:end] = keys
            rows_kv[1, :, first:end] = values
            return functional.scaled_dot_product_attention(
                queries[None],
                rows_kv[0, None, :, :end],
                rows_kv[1, None, :, :end],
                attn_mask=_seen(visible, end).to(queries.device),
                enable_gqa=True,
            )[0]

        device = self.embedding.device
        turning = turns(torch.tensor(positions, device=device), self.frequencies, self.dtype)
        rows = self.through(torch.tensor(tokens, device=device), hidden, turning, attended)
        cache.used = end
        return rows

    def through(
        self,
        tokens: Int[Tensor, "N"],
        hidden: Float[Tensor, "N X"],
        turning: tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]],
        attended: Attended,
    ) -> Float[Tensor, "N X"]:
        """Outputs of N rows; see `GuidedHead.forward`.

        Args:
            tokens: Token ids of the rows.
            hidden: Hidden state at the position before each token.
            turning: Rotations to the rows' positions; see `turns`.
            attended: Stores the keys and values of the rows, and computes the rows' attention.
        """
        embedded = self.embedding[tokens]
        normed = self._normed(hidden, f"{LAYER}.hidden_norm")
        rows = normed if self.shape.norm_before_residual else hidden
        given = torch.cat([self._normed(embedded, f"{LAYER}.input_layernorm"), normed], -1)
        for number in range(self.shape.layers):
            name = f"layers.{number}"
            given = self._normed(rows, f"{name}.input_layernorm") if number else given
            rows = rows + self._attended(number, given, turning, attended)
            rows = rows + self._mlp(number, self._normed(rows, f"{name}.post_attention_layernorm"))
        return rows

    @cached_property
    def masks(self) -> tuple[list[int], Float[Tensor, "N X"]]:
        """Token ids and hidden states of P-EAGLE's mask rows: one row for each level after the first."""
        count, token = self.shape.guesses - 1, self.shape.mask_token
        if token is None:
            return [], self.no_hidden(0)
        return [token] * count, self.fused(self.weights[MASK].flatten(0, 1)).expand(count, -1)

    def carried(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        """See `GuidedHead`."""
        return self._normed(outputs, "norm") if self.shape.norm_output else outputs

    def logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        """See `GuidedHead`."""
        own = product(self._normed(outputs, "norm"), self.weights["lm_head.weight"], None)
        return over_target_ids(own, self.tokens, self.shape.layer.vocab_size)

    def _attended(
        self,
        number: int,
        rows: Float[Tensor, "N Z"],
        turning: tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]],
        attended: Attended,
    ) -> Float[Tensor, "N X"]:
        arch, name = self.shape.layer, f"layers.{number}.self_attn"
        queries = turned(self._heads(rows, f"{name}.q", arch.num_attention_heads), *turning)
        keys = turned(self._heads(rows, f"{name}.k", arch.num_key_value_heads), *turning)
        values = self._heads(rows, f"{name}.v", arch.num_key_value_heads)
        heads = attended(number, queries, keys, values)
        return self._times(heads.transpose(0, 1).flatten(1), f"{name}.o_proj")

    def _heads(self, rows: Float[Tensor, "N Z"], name: str, heads: int) -> Float[Tensor, "H N D"]:
        split = self._times(rows, f"{name}_proj").unflatten(-1, (heads, -1)).transpose(0, 1)
        normed = self.shape.normed_heads and not name.endswith(".v")
        return self._normed(split, f"{name}_norm") if normed else split

    @cached_property
    def frequencies(self) -> Float[Tensor, "R"]:
        """Rotary frequencies of the layers."""
        return self.shape.layer.frequencies.to(self.embedding.device)

    def _mlp(self, number: int, rows: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        names = [f"layers.{number}.mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        return gated(rows, *(self.weights[name] for name in names))

    def _times(self, rows: Float[Tensor, "N A"], name: str) -> Float[Tensor, "N B"]:
        return functional.linear(rows, self.weights[f"{name}.weight"])

    def _normed(self, rows: Float[Tensor, "*N X"], name: str) -> Float[Tensor, "*N X"]:
        return rms_normed(rows, self.weights[f"{name}.weight"], self.shape.layer.norm_eps)


def _seen(visible: NDArray[np.bool_], width: int) -> Bool[Tensor, "N S"]:
    """Extends a mask of the last M rows, shape (N, M), to all S rows, shape (N, S): earlier rows are visible."""
    rows, recent = visible.shape
    seen = torch.ones((rows, width), dtype=torch.bool)
    seen[:, width - recent :] = torch.from_numpy(visible)
    return seen
