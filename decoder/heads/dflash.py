"""Network of a DFlash head in plain torch, on any device, in the head's dtype.

For a token of the text, all layers compute their keys and values from the same row, a projection of the target's states
at the token. A block (the text's last token, then mask tokens) attends to the text and to itself; its rows predict all
tokens of the block at once. The keys and values of a block are dropped after the pass.
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
from decoder.heads.dflash_shape import BlockRow, BlockShape, Convolution, Correction
from decoder.heads.parts import Attend, HeadModule, Layer, RmsNorm, Rotation

Rows = Callable[[Float[Tensor, "R X"]], Float[Tensor, "R X"]]
"""A sublayer: normalised input rows -> output rows."""


@dataclass(frozen=True, eq=False)
class DraftBlock:
    anchor: int
    """The token of the text that is the block's first row."""
    rows: Sequence[BlockRow]
    """The rows that predict tokens, one row for each level of a tree."""
    memory: Float[Tensor, "1 R"]
    """Recurrent state of the head's correction before the first of `rows`."""


@dataclass(frozen=True)
class _Layout:
    """Layout of cache rows and their positions: first the rows of the text, then the rows of each block in turn."""

    text: int
    starts: Sequence[int]
    """Text position of each block's first row."""
    size: int
    """Number of rows in each block."""

    @property
    def stop(self) -> int:
        return self.text + len(self.starts) * self.size

    @property
    def positions(self) -> list[int]:
        return [start + place for start in self.starts for place in range(self.size)]


class _Convolution(nn.Module):
    """DFlash2's convolutions over the rows of each block: one of a sublayer's input, one of its output."""

    def __init__(self, shape: BlockShape, convolution: Convolution) -> None:
        super().__init__()
        width, self.taps, self.group = shape.layer.hidden_size, convolution.taps, convolution.group
        self.size = shape.block_size
        self.base_kernel = nn.Parameter(torch.empty(2, self.taps, width))
        self.kernel_projection = nn.Linear(width, 2 * self.taps * width // self.group, bias=False)

    def forward(self, rows: Float[Tensor, "R X"], sublayer: Rows) -> Float[Tensor, "R X"]:
        """Convolves input and output of `sublayer`; the kernels of both convolutions depend on the input rows."""
        dynamic = self.kernel_projection(rows).view(len(rows), 2, self.taps, -1)
        kernels = self.base_kernel + dynamic.repeat_interleave(self.group, -1)
        return convolved(sublayer(convolved(rows, kernels[:, 0], self.size)), kernels[:, 1], self.size)


class _Layer(Layer):
    """A Qwen3 layer, in DFlash2 with convolutions around attention and MLP."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__(shape.layer, shape.layer.hidden_size, normed=True)
        self.attention_conv, self.mlp_conv = (
            _Convolution(shape, shape.convolution) if shape.convolution else None for _ in range(2)
        )

    def through(self, rows: Float[Tensor, "R X"], rotation: Rotation, attend: Attend) -> Float[Tensor, "R X"]:
        given = self.input_layernorm(rows)
        if self.attention_conv is None or self.mlp_conv is None:
            return self.forward(rows, given, rotation, attend)
        rows = rows + self.attention_conv(given, partial(self.self_attn, rotation=rotation, attend=attend))
        output: Tensor = rows + self.mlp_conv(self.post_attention_layernorm(rows), self.mlp)
        return output


class BlockHead(HeadModule):
    """A DFlash head, built with random weights."""

    def __init__(self, name: str, shape: BlockShape, target_layers: Sequence[int]) -> None:
        super().__init__(name, shape, target_layers)
        self.shape, arch = shape, shape.layer
        self.hidden_norm = RmsNorm(arch.hidden_size, arch.norm_eps)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(arch.num_hidden_layers))
        if shape.correction:
            self.add_module(shape.correction.prefix, shape.correction.module(shape))

    @property
    def correction(self) -> Correction | None:
        """The correction of the head's logits; None if logits do not depend on the tokens before their rows."""
        own = self.shape.correction
        return cast(Correction, self.get_submodule(own.prefix)) if own else None

    @property
    def _layers(self) -> list[_Layer]:
        return [layer for layer in self.layers if isinstance(layer, _Layer)]

    def new_cache(self, capacity: int) -> KvCache:
        """A KV cache for `capacity` rows of text and one block."""
        arch = self.shape.layer
        rows = capacity + self.shape.block_size
        size = (arch.num_hidden_layers, 2, arch.num_key_value_heads, rows, arch.head_dim)
        return KvCache(torch.zeros(size, dtype=self.dtype, device=self.device))

    def read(self, cache: KvCache, states: Float[Tensor, "N Y"]) -> None:
        """Adds text rows to the cache, each computed from the concatenated target states at one token."""
        end = cache.length + len(states)
        cache.reserve(end + self.shape.block_size)
        rows = self.hidden_norm(self.fc(states.to(self.fc.weight)))
        rotation = self.rotation(torch.arange(cache.length, end, device=self.device))
        for number, layer in enumerate(self._layers):
            kept = cache.store[number, :, :, cache.length : end]
            kept[0], kept[1] = layer.self_attn.keys_and_values(rows, rotation)
        cache.length = cache.used = end

    def blocks(self, cache: KvCache, anchors: Sequence[int]) -> list[DraftBlock]:
        """Computes a block for each of `anchors`, the last tokens of the text. The cache must not have a row for the
        last anchor yet. A block attends to the text's rows before the block, and to its own rows.
        """
        shape, count = self.shape, len(anchors)
        layout = _Layout(cache.length, [cache.length - count + 1 + place for place in range(count)], shape.block_size)
        cache.reserve(layout.stop)
        masks = [shape.mask_token] * (shape.block_size - 1)
        tokens = torch.tensor([[anchor, *masks] for anchor in anchors], device=self.device)
        rows = self.embed_tokens(tokens.flatten()) * shape.embedding_scale
        rotation = self.rotation(torch.tensor(layout.positions, device=self.device))
        for number, layer in enumerate(self._layers):
            rows = layer.through(rows, rotation, partial(self._attended, number, cache, layout))
        hidden = self.norm(rows)
        logits = self._scaled(hidden)
        all_rows = [BlockRow(*parts) for parts in zip(rows, hidden, logits, strict=True)]
        return [
            self._begun(anchor, all_rows[place * shape.block_size : (place + 1) * shape.block_size])
            for place, anchor in enumerate(anchors)
        ]

    def _begun(self, anchor: int, rows: Sequence[BlockRow]) -> DraftBlock:
        correction = self.correction
        memory = rows[0].output.new_zeros((1, correction.memory_width if correction else 0))
        if self.shape.from_anchor:
            return DraftBlock(anchor, rows, memory)
        # The first row predicts no token, but it is the first input of the correction's memory.
        if correction and memory.shape[1]:
            _, memory = correction(self, rows[0], torch.tensor([anchor], device=self.device), memory)
        return DraftBlock(anchor, rows[1:], memory)

    def logits(
        self, row: BlockRow, tokens: Sequence[int], memory: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "M V"], Float[Tensor, "N R"]]:
        """Logits over the target's token ids after each of N previous tokens (a single row if the head has no
        correction), and the memory of the N paths for the next row.
        """
        correction = self.correction
        if correction is None:
            return self.over_target_ids(row.logits[None]), memory
        own, memory = correction(self, row, torch.tensor(tokens, device=self.device), memory)
        return self.over_target_ids(own), memory

    def own_logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N D"]:
        """Logits over the head's own token ids, from the last layer's outputs."""
        return self._scaled(self.norm(outputs))

    def _scaled(self, hidden: Float[Tensor, "N X"]) -> Float[Tensor, "N D"]:
        logits: Tensor = self.lm_head(hidden) * self.shape.output_scale
        cap = self.shape.softcap
        return logits if cap is None else cap * (logits / cap).tanh()

    def _attended(
        self, layer: int, cache: KvCache, layout: _Layout, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Float[Tensor, "H R D"]:
        stored = cache.store[layer, :, None, :, : layout.stop]
        stored[0, 0, :, layout.text :], stored[1, 0, :, layout.text :] = keys, values
        mask = self._mask(layer, layout)
        mask = None if mask is None else mask.to(self.device)
        return functional.scaled_dot_product_attention(
            queries[None], stored[0], stored[1], attn_mask=mask, enable_gqa=True
        )[0]

    def _mask(self, layer: int, layout: _Layout) -> Bool[Tensor, "R S"] | None:
        """Which rows of text and blocks each block row attends to; None if every block row attends to all rows."""
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
    """Causal convolution over the rows of blocks of `size` rows: output row i is the sum of `kernels[i, t] * rows[i -
    t]` over all t for which row i - t is in the same block.
    """
    taps = kernels.shape[1]
    padded = functional.pad(rows.unflatten(0, (-1, size)), (0, 0, taps - 1, 0))
    shifted = [padded[:, taps - 1 - tap :][:, :size].flatten(0, 1) for tap in range(taps)]
    return torch.stack([kernels[:, tap] * before for tap, before in enumerate(shifted)]).sum(0)
