"""Network of a DFlash head in plain torch, on any device, in the head's dtype.

For a token of the text, all layers compute their keys and values from the same row, a projection of the target's states
at the token. A block (the text's last token, then mask tokens) attends to the text and to itself; its rows predict all
tokens of the block at once. The keys and values of a block are dropped after the pass. Knows neither trees nor texts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.kv_cache import KvCache
from decoder.heads.dflash_corrections import Correction, Row, correction_of
from decoder.heads.dflash_shape import BlockShape, Convolution
from decoder.heads.parts import HeadModule, Mlp, RmsNorm, Rotation, SelfAttention

Rows = Callable[[Float[Tensor, "R X"]], Float[Tensor, "R X"]]
"""A sublayer: normalised input rows -> output rows."""


@dataclass(frozen=True, eq=False)
class Block:
    """Results of a pass over a block."""

    anchor: int
    """The text's last token, which is the block's first row."""
    rows: Sequence[Row]
    """The rows that predict tokens, one for each level of a tree."""
    memory: Float[Tensor, "1 R"]
    """Memory (recurrent state) of the head's correction before the first of `rows`."""


@dataclass(frozen=True)
class _Layout:
    """Text positions and cache rows of a pass over one or several blocks; the cache rows of the blocks follow those of
    the text, block by block.
    """

    text: int
    """Number of cache rows of the text."""
    starts: Sequence[int]
    """Text position of each block's first row."""
    size: int
    """Number of rows in each block."""

    @property
    def stop(self) -> int:
        """Number of cache rows of the text and all blocks."""
        return self.text + len(self.starts) * self.size

    @property
    def positions(self) -> list[int]:
        """Text position of each row of the blocks."""
        return [start + place for start in self.starts for place in range(self.size)]


class _Convolution(nn.Module):
    """DFlash2's convolutions of the input and of the output of a sublayer over the rows of each block."""

    def __init__(self, shape: BlockShape, convolution: Convolution) -> None:
        super().__init__()
        width, self.taps, self.group = shape.layer.hidden_size, convolution.taps, convolution.group
        self.size = shape.block_size
        self.base_kernel = nn.Parameter(torch.empty(2, self.taps, width))
        self.kernel_projection = nn.Linear(width, 2 * self.taps * width // self.group, bias=False)

    def forward(self, rows: Float[Tensor, "R X"], sublayer: Rows) -> Float[Tensor, "R X"]:
        """Output of the sublayer; the kernels of both convolutions depend on its input rows."""
        dynamic = self.kernel_projection(rows).view(len(rows), 2, self.taps, -1)
        kernels = self.base_kernel + dynamic.repeat_interleave(self.group, -1)
        return convolved(sublayer(convolved(rows, kernels[:, 0], self.size)), kernels[:, 1], self.size)


class _Layer(nn.Module):
    """A Qwen3 layer, in DFlash2 with convolutions around attention and MLP."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        arch = shape.layer
        self.input_layernorm, self.post_attention_layernorm = (
            RmsNorm(arch.hidden_size, arch.norm_eps) for _ in range(2)
        )
        self.self_attn = SelfAttention(arch, arch.hidden_size, normed=True)
        self.mlp = Mlp(arch)
        self.attention_conv, self.mlp_conv = (
            _Convolution(shape, shape.convolution) if shape.convolution else None for _ in range(2)
        )

    def forward(self, rows: Float[Tensor, "R X"], attend: Rows) -> Float[Tensor, "R X"]:
        """Rows after attention and MLP; `attend` computes the attention of normalised rows."""
        first = self.input_layernorm, attend, self.attention_conv
        for norm, sublayer, convolution in (first, (self.post_attention_layernorm, self.mlp, self.mlp_conv)):
            given = norm(rows)
            rows = rows + (convolution(given, sublayer) if convolution else sublayer(given))
        return rows


class BlockHead(HeadModule):
    """A DFlash head."""

    def __init__(self, name: str, shape: BlockShape, target_layers: Sequence[int]) -> None:
        """A head of random weights; `target_layers` are the target layers whose inputs it reads."""
        arch = shape.layer
        super().__init__(name, shape.kind, arch, shape.draft_vocabulary, shape.states * shape.target_width)
        self.shape, self.target_layers = shape, tuple(target_layers)
        self.hidden_norm = RmsNorm(arch.hidden_size, arch.norm_eps)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(arch.num_hidden_layers))
        self._correction = ""
        """Name of the correction's module; empty if the head has no correction."""
        if found := correction_of(shape):
            self._correction, correction = found
            self.add_module(self._correction, correction)

    @property
    def correction(self) -> Correction | None:
        """The correction; None if the logits of rows do not depend on the tokens before the rows."""
        return cast(Correction, self.get_submodule(self._correction)) if self._correction else None

    @property
    def _attentions(self) -> list[SelfAttention]:
        return [layer.self_attn for layer in self.layers if isinstance(layer, _Layer)]

    def new_cache(self, capacity: int) -> KvCache:
        """An empty KV cache with room for `capacity` rows of text and one block."""
        arch = self.shape.layer
        rows = capacity + self.shape.block_size
        size = (arch.num_hidden_layers, 2, arch.num_key_value_heads, rows, arch.head_dim)
        return KvCache(torch.zeros(size, dtype=self.dtype, device=self.device))

    def read(self, cache: KvCache, states: Float[Tensor, "N Y"]) -> None:
        """Appends and commits rows of text, each computed from the concatenated target states at one token."""
        end = cache.length + len(states)
        cache.reserve(end + self.shape.block_size)
        rows = self.hidden_norm(self.fc(states.to(self.fc.weight)))
        rotation = self.rotation(torch.arange(cache.length, end, device=self.device))
        for number, attention in enumerate(self._attentions):
            kept = cache.store[number, :, :, cache.length : end]
            kept[0], kept[1] = attention.keys_and_values(rows, rotation)
        cache.length = cache.used = end

    def blocks(self, cache: KvCache, anchors: Sequence[int]) -> list[Block]:
        """Computes several blocks in one pass. `anchors` are the last tokens of the text, and one block begins at each
        of them. The text's last token must not have a row in the cache yet. A block sees the rows of the text before
        it, and its own rows.
        """
        shape, count = self.shape, len(anchors)
        layout = _Layout(cache.length, [cache.length - count + 1 + place for place in range(count)], shape.block_size)
        cache.reserve(layout.stop)
        masks = [shape.mask_token] * (shape.block_size - 1)
        tokens = torch.tensor([[anchor, *masks] for anchor in anchors], device=self.device)
        rows = self.embed_tokens(tokens.flatten()) * shape.embedding_scale
        rotation = self.rotation(torch.tensor(layout.positions, device=self.device))
        for number, layer in enumerate(self.layers):
            rows = layer(rows, partial(self._attended, number, cache, layout, rotation))
        hidden = self.norm(rows)
        logits = self._scaled(hidden)
        all_rows = [Row(*parts) for parts in zip(rows, hidden, logits, strict=True)]
        return [
            self._begun(anchor, all_rows[place * shape.block_size : (place + 1) * shape.block_size])
            for place, anchor in enumerate(anchors)
        ]

    def _begun(self, anchor: int, rows: Sequence[Row]) -> Block:
        """Makes a block from the results of all its rows."""
        correction = self.correction
        memory = rows[0].output.new_zeros((1, correction.memory_width if correction else 0))
        if self.shape.from_anchor:
            return Block(anchor, rows, memory)
        # The first row predicts no token, but it is the first input of the correction's memory.
        if correction and memory.shape[1]:
            _, memory = correction(self, rows[0], torch.tensor([anchor], device=self.device), memory)
        return Block(anchor, rows[1:], memory)

    def logits(
        self, row: Row, tokens: Sequence[int], memory: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "M V"], Float[Tensor, "N R"]]:
        """Logits of a block's row after each of N possible previous tokens, over the target's token ids; a single row
        of logits if the head has no correction. Also returns the memory of the N paths for the next row.
        """
        correction = self.correction
        if correction is None:
            return self.over_target_ids(row.logits[None]), memory
        own, memory = correction(self, row, torch.tensor(tokens, device=self.device), memory)
        return self.over_target_ids(own), memory

    def own_logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N D"]:
        """Logits of outputs of the last layer, over the head's own token ids."""
        return self._scaled(self.norm(outputs))

    def _scaled(self, hidden: Float[Tensor, "N X"]) -> Float[Tensor, "N D"]:
        logits: Tensor = self.lm_head(hidden) * self.shape.output_scale
        cap = self.shape.softcap
        return logits if cap is None else cap * (logits / cap).tanh()

    def _attended(
        self, layer: int, cache: KvCache, layout: _Layout, rotation: Rotation, rows: Float[Tensor, "R X"]
    ) -> Float[Tensor, "R X"]:
        attention = self._attentions[layer]
        stored = cache.store[layer, :, None, :, : layout.stop]
        stored[0, 0, :, layout.text :], stored[1, 0, :, layout.text :] = attention.keys_and_values(rows, rotation)
        mask = self._mask(layer, layout)
        attended = functional.scaled_dot_product_attention(
            attention.queries(rows, rotation)[None],
            stored[0],
            stored[1],
            attn_mask=None if mask is None else mask.to(self.device),
            enable_gqa=True,
        )
        return attention.merged(attended[0])

    def _mask(self, layer: int, layout: _Layout) -> Bool[Tensor, "R S"] | None:
        """Attention mask: which rows of the text and of the blocks each block row sees; None if each block row sees all
        of them.
        """
        window, causal = self.shape.window(layer), self.shape.causal[layer]
        if window is None and not causal and len(layout.starts) == 1:
            return None
        size, text = layout.size, torch.arange(layout.text)
        starts = torch.tensor(layout.starts).repeat_interleave(size)[:, None]
        rows = torch.tensor(layout.positions)[:, None]
        keys = torch.cat([text, rows[:, 0]])
        owners = torch.cat([torch.full_like(text, -1), starts[:, 0]])
        seen = (owners == starts) | ((owners < 0) & (keys < starts))
        if causal:
            seen &= keys <= rows
        if window is not None and self.shape.fixed_window:
            seen &= keys >= starts - window
        elif window is not None:
            seen &= (rows - keys).abs() < window
        return seen


def convolved(rows: Float[Tensor, "R X"], kernels: Float[Tensor, "R T X"], size: int) -> Float[Tensor, "R X"]:
    """Causal convolution over the rows of blocks of `size` rows: output row i is a sum over all t for which row i - t
    is in the same block; the terms are `kernels[i, t] * rows[i - t]`.
    """
    taps = kernels.shape[1]
    padded = functional.pad(rows.unflatten(0, (-1, size)), (0, 0, taps - 1, 0))
    shifted = [padded[:, taps - 1 - tap :][:, :size].flatten(0, 1) for tap in range(taps)]
    return torch.stack([kernels[:, tap] * before for tap, before in enumerate(shifted)]).sum(0)
