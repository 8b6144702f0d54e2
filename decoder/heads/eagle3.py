"""Network of EAGLE-3 and P-EAGLE heads: one or a few layers that predict tokens from the target's hidden states.
Sources: EAGLE-3 (arXiv 2503.01840), section 3; EAGLE-3.1 for some options; P-EAGLE (arXiv 2602.01469) for mask rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.families.model import write_slots
from decoder.forward.kv_cache import KvCache
from decoder.forward.linear import product
from decoder.forward.protocol import Ints, Mask
from decoder.heads.parts import GuidedHead, HeadModule, Layer, RmsNorm, Rotation, Shape, StatesReader

KIND, PARALLEL_KIND = "EAGLE-3 head", "P-EAGLE head"
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""`parts.Attend` of all layers; the first argument is the number of the layer."""


@dataclass(frozen=True)
class HeadShape(Shape):
    norm_before_residual: bool = False
    """Whether the residual starts from the normalised hidden row."""
    norm_before_fc: bool = False
    """Whether the concatenated target states are normalised before the first linear layer."""
    fc_norm: bool = False
    """Whether each target state is normalised on its own before the first linear layer."""
    norm_output: bool = False
    """Whether the hidden input of a drafted row is its parent's normalised output."""
    normed_heads: bool = False
    """Whether the queries and keys of each attention head are normalised, as in Qwen3."""
    layers: int = 1
    """Number of layers; all but the first are plain layers of Llama or Qwen3."""
    guesses: int = 1
    """Number of levels that a pass over the text predicts: 1, plus one for each of P-EAGLE's mask rows."""
    mask_token: int | None = None
    """Token of P-EAGLE's mask rows; None in an EAGLE-3 head."""

    @property
    def kind(self) -> str:
        return PARALLEL_KIND if self.parallel else KIND

    @property
    def parallel(self) -> bool:
        """Whether one pass over the text predicts all levels of a tree, as in P-EAGLE."""
        return self.mask_token is not None

    def usual_layers(self, layers: int) -> tuple[int, ...]:
        """A low, a middle and a high layer."""
        return 2, layers // 2, layers - 3


class _First(Layer):
    """The first layer, whose attention reads the embedded token and the hidden row, concatenated."""

    def __init__(self, shape: HeadShape) -> None:
        width = shape.layer.hidden_size
        super().__init__(shape.layer, 2 * width, normed=shape.normed_heads)
        self.hidden_norm = RmsNorm(width, shape.layer.norm_eps)


class Head(HeadModule, GuidedHead):
    """An EAGLE-3 or P-EAGLE head, built with random weights."""

    def __init__(self, name: str, shape: HeadShape, target_layers: Sequence[int]) -> None:
        super().__init__(name, shape, target_layers)
        arch, states, eps = shape.layer, self.fc.in_features, shape.layer.norm_eps
        self.shape = shape
        if shape.norm_before_fc:
            self.input_norm = RmsNorm(states, eps)
        if shape.fc_norm:
            self.fc_norm = nn.ModuleList(RmsNorm(shape.target_width, eps) for _ in range(shape.states))
        others = (Layer(arch, arch.hidden_size, normed=shape.normed_heads) for _ in range(shape.layers - 1))
        self.layers = nn.ModuleList([_First(shape), *others])
        if shape.parallel:
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, states))

    def new_cache(self, capacity: int) -> KvCache:
        arch = self.shape.layer
        size = (self.shape.layers, 2, arch.num_key_value_heads, capacity, arch.head_dim)
        return KvCache(torch.zeros(size, dtype=self.dtype, device=self.device))

    def no_states(self, count: int) -> Float[Tensor, "N Y"]:
        return self.fc.weight.new_zeros((count, self.fc.in_features))

    def no_hidden(self, count: int) -> Float[Tensor, "N X"]:
        return self.fc.weight.new_zeros((count, self.fc.out_features))

    def fused(self, states: Float[Tensor, "*B N Y"]) -> Float[Tensor, "*B N X"]:
        states = states.to(self.fc.weight)
        if self.shape.fc_norm:
            parts = zip(self.fc_norm, states.chunk(self.shape.states, -1), strict=True)
            states = torch.cat([norm(part) for norm, part in parts], -1)
        fused: Tensor = self.fc(self.input_norm(states) if self.shape.norm_before_fc else states)
        return fused

    def forward(
        self, cache: KvCache, tokens: Ints, hidden: Float[Tensor, "N X"], positions: Ints, visible: Mask
    ) -> Float[Tensor, "N X"]:
        first, end = cache.used, cache.used + len(tokens)
        seen = _seen(visible, end).to(self.device)

        def attend(number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            rows_kv = cache.store[number]
            rows_kv[0, :, first:end] = keys
            rows_kv[1, :, first:end] = values
            return functional.scaled_dot_product_attention(
                queries[None], rows_kv[0, None, :, :end], rows_kv[1, None, :, :end], attn_mask=seen, enable_gqa=True
            )[0]

        rotation = self.rotation(torch.tensor(positions, device=self.device))
        rows = self.through(torch.tensor(tokens, device=self.device), hidden, rotation, attend)
        cache.used = end
        return rows

    def through(
        self, tokens: Int[Tensor, "*B N"], hidden: Float[Tensor, "*B N X"], rotation: Rotation, attend: Attend
    ) -> Float[Tensor, "*B N X"]:
        """Outputs of N rows; `tokens` and `hidden` are the arguments of `GuidedHead.forward`."""
        first, *others = cast("tuple[_First, *tuple[Layer, ...]]", tuple(self.layers))
        normed = first.hidden_norm(hidden)
        given = torch.cat([first.input_layernorm(self.embed_tokens(tokens)), normed], -1)
        residual = normed if self.shape.norm_before_residual else hidden
        rows: Tensor = first(residual, given, rotation, lambda *parts: attend(0, *parts))
        for number, layer in enumerate(others, 1):
            rows = layer(rows, layer.input_layernorm(rows), rotation, lambda *parts, at=number: attend(at, *parts))
        return rows

    @cached_property
    def masks(self) -> tuple[list[int], Float[Tensor, "N X"]]:
        """Token ids and hidden states of P-EAGLE's mask rows, one row for each level after the first."""
        count, token = self.shape.guesses - 1, self.shape.mask_token
        if token is None:
            return [], self.no_hidden(0)
        return [token] * count, self.fused(self.mask_hidden.flatten(0, 1)).expand(count, -1)

    def carried(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N X"]:
        return self.norm(outputs) if self.shape.norm_output else outputs

    def logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N V"]:
        return self.over_target_ids(product(self.norm(outputs), self.lm_head.weight, None))


def _seen(visible: NDArray[np.bool_], width: int) -> Bool[Tensor, "N S"]:
    """Extends `visible`, whose M columns are the last M rows, to `width` columns; all earlier rows are visible."""
    rows, recent = visible.shape
    seen = torch.ones((rows, width), dtype=torch.bool)
    seen[:, width - recent :] = torch.from_numpy(visible)
    return seen


UNTAPPED = "a drafting head reads layer inputs, which only native models store in CUDA graphs"


@dataclass(frozen=True)
class StaticHead:
    """An EAGLE-3 head whose passes write their keys and values to given slots of a store."""

    head: Head

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        return self.head.new_cache(capacity).store

    def rotation(self, positions: Int[Tensor, "N"]) -> Float[Tensor, "2 N R"]:
        """Cosines and sines at the positions, as the argument `rotation` of `outputs`."""
        return torch.stack(self.head.rotation(positions))

    def outputs(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        hidden: Float[Tensor, "N X"],
        rotation: Float[Tensor, "2 N R"],
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N X"]:
        """`bias` is added to the scores of the first M slots; for the other arguments, see `GuidedHead.forward`."""

        def attend(number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            write_slots(store, number, slots, torch.stack((keys, values)))
            # Each group of query heads is one batch, which reads its shared keys from the store without a copy.
            asking = queries.unflatten(0, (len(keys), -1))
            shared = (len(keys), asking.shape[1], -1, -1)
            seen = store[number, :, :, None, : bias.shape[1]]
            return functional.scaled_dot_product_attention(
                asking, seen[0].expand(shared), seen[1].expand(shared), bias
            ).flatten(0, 1)

        return self.head.through(tokens, hidden, Rotation(rotation[0], rotation[1]), attend)


def static_head(head: StatesReader | None) -> StaticHead | None:
    """The head's static form; None if there is no head, or if the head has no static form."""
    return StaticHead(head) if isinstance(head, Head) and has_static_form(head.shape) else None


def only_on_host(head: StatesReader | None) -> bool:
    return head is not None and static_head(head) is None


def has_static_form(shape: object) -> bool:
    return isinstance(shape, HeadShape) and not shape.parallel
