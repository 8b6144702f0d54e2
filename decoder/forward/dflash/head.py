"""Network of a DFlash head in plain torch, on any device, in the head's dtype.

For a token of the text, all layers compute their keys and values from the same row, a projection of the target's states
at the token. A block (the text's last token, then mask tokens) attends to the text and to itself; its rows predict all
tokens of the block at once. The keys and values of a block are dropped after the pass. Knows neither trees nor texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from decoder.forward.dflash.corrections import Correct, Parts, Row, correction_of, memory_width
from decoder.forward.dflash.shape import BlockShape
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_parts import gated, over_target_ids, rms_normed, rotated

Convolve = Callable[[Float[Tensor, "R X"]], Float[Tensor, "R X"]]


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


@dataclass(frozen=True, eq=False)
class BlockHead:
    """A DFlash head with its weights, all on one device and in one dtype."""

    name: str
    """Hub id or folder name."""
    shape: BlockShape
    layers: tuple[int, ...]
    """Numbers of the target layers whose inputs the head reads, ascending."""
    weights: Mapping[str, Tensor] = field(repr=False)
    """Weights by name; see `decoder.forward.dflash.shape.shapes`."""
    embedding: Float[Tensor, "V X"] = field(repr=False)
    """Input embedding, the head's own or the target's."""
    output: Float[Tensor, "D X"] = field(repr=False)
    """Output head, the head's own or the target's."""
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
        """An empty KV cache with room for `capacity` rows of text and one block."""
        arch = self.shape.layer
        rows = capacity + self.shape.block_size
        size = (arch.num_hidden_layers, 2, arch.num_key_value_heads, rows, arch.head_dim)
        return KvCache(torch.zeros(size, dtype=self.dtype, device=self.embedding.device))

    def read(self, cache: KvCache, states: Float[Tensor, "N Y"]) -> None:
        """Appends and commits rows of text, each computed from the concatenated target states at one token."""
        end = cache.length + len(states)
        cache.reserve(end + self.shape.block_size)
        rows = self._normed(self._times(states.to(self.embedding), "fc"), "hidden_norm")
        for layer in range(self.shape.layer.num_hidden_layers):
            self._store(layer, rows, cache, cache.length, range(cache.length, end))
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
        tokens = torch.tensor([[anchor, *masks] for anchor in anchors], device=self.embedding.device)
        rows = self.embedding[tokens.flatten()] * shape.embedding_scale
        for layer in range(shape.layer.num_hidden_layers):
            rows = self._layer(layer, rows, cache, layout)
        hidden = self._normed(rows, "norm")
        logits = self._own_logits(hidden)
        all_rows = [Row(*parts) for parts in zip(rows, hidden, logits, strict=True)]
        return [
            self._begun(anchor, all_rows[place * shape.block_size : (place + 1) * shape.block_size])
            for place, anchor in enumerate(anchors)
        ]

    def _begun(self, anchor: int, rows: Sequence[Row]) -> Block:
        """Makes a block from the results of all its rows."""
        memory = rows[0].output.new_zeros((1, memory_width(self.shape)))
        if self.shape.from_anchor:
            return Block(anchor, rows, memory)
        # The first row predicts no token, but it is the first input of the correction's memory.
        if self._correct is not None and memory.shape[1]:
            _, memory = self._correct(rows[0], torch.tensor([anchor], device=memory.device), memory)
        return Block(anchor, rows[1:], memory)

    def logits(
        self, row: Row, tokens: Sequence[int], memory: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "M V"], Float[Tensor, "N R"]]:
        """Logits of a block's row after each of N possible previous tokens, over the target's token ids; a single row
        of logits if the head has no correction. Also returns the memory of the N paths for the next row.
        """
        if self._correct is None:
            own = row.logits[None]
        else:
            own, memory = self._correct(row, torch.tensor(tokens, device=row.logits.device), memory)
        return over_target_ids(own, self.tokens, self.shape.layer.vocab_size), memory

    def _layer(self, layer: int, rows: Float[Tensor, "R X"], cache: KvCache, layout: _Layout) -> Float[Tensor, "R X"]:
        at = f"layers.{layer}"
        given, finish = self._convolved(self._normed(rows, f"{at}.input_layernorm"), f"{at}.attention_conv")
        rows = rows + finish(self._attended(layer, given, cache, layout))
        given, finish = self._convolved(self._normed(rows, f"{at}.post_attention_layernorm"), f"{at}.mlp_conv")
        matrices = (self.weights[f"{at}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return rows + finish(gated(given, *matrices))

    def _attended(
        self, layer: int, rows: Float[Tensor, "R X"], cache: KvCache, layout: _Layout
    ) -> Float[Tensor, "R X"]:
        at, arch = f"layers.{layer}.self_attn", self.shape.layer
        queries = self._normed(self._heads(rows, f"{at}.q", arch.num_attention_heads), f"{at}.q_norm")
        self._store(layer, rows, cache, layout.text, layout.positions)
        mask = self._mask(layer, layout)
        keys, values = cache.store[layer, :, None, :, : layout.stop]
        attended = functional.scaled_dot_product_attention(
            rotated(queries, layout.positions, self._frequencies)[None],
            keys,
            values,
            attn_mask=None if mask is None else mask.to(rows.device),
            enable_gqa=True,
        )
        return self._times(attended[0].transpose(0, 1).flatten(1), f"{at}.o_proj")

    def _store(
        self, layer: int, rows: Float[Tensor, "N X"], cache: KvCache, first: int, positions: Sequence[int]
    ) -> None:
        """Writes the keys and values of rows at text positions `positions` to the cache rows that begin at `first`."""
        at, heads = f"layers.{layer}.self_attn", self.shape.layer.num_key_value_heads
        keys = self._normed(self._heads(rows, f"{at}.k", heads), f"{at}.k_norm")
        kept = cache.store[layer, :, :, first : first + len(rows)]
        kept[0] = rotated(keys, positions, self._frequencies)
        kept[1] = self._heads(rows, f"{at}.v", heads)

    def _mask(self, layer: int, layout: "_Layout") -> Bool[Tensor, "R S"] | None:
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

    def _heads(self, rows: Float[Tensor, "N X"], name: str, heads: int) -> Float[Tensor, "H N D"]:
        split: Tensor = self._times(rows, f"{name}_proj").unflatten(-1, (heads, -1)).transpose(0, 1)
        return split

    def _own_logits(self, hidden: Float[Tensor, "N X"]) -> Float[Tensor, "N D"]:
        """Logits of normalised rows over the head's own token ids."""
        logits = functional.linear(hidden, self.output) * self.shape.output_scale
        cap = self.shape.softcap
        return logits if cap is None else cap * (logits / cap).tanh()

    def _convolved(self, rows: Float[Tensor, "R X"], name: str) -> tuple[Float[Tensor, "R X"], Convolve]:
        """The convolved input of a sublayer, and a function that convolves its output. Without convolutions the input
        is unchanged and the function is the identity.
        """
        convolution = self.shape.convolution
        if convolution is None:
            return rows, lambda output: output
        base = self.weights[f"{name}.base_kernel"]
        dynamic = self._times(rows, f"{name}.kernel_projection").view(len(rows), 2, convolution.taps, -1)
        kernels = base + dynamic.repeat_interleave(convolution.group, -1)
        size = self.shape.block_size
        return convolved(rows, kernels[:, 0], size), lambda output: convolved(output, kernels[:, 1], size)

    @cached_property
    def _correct(self) -> Correct | None:
        return correction_of(Parts(self.shape, self.weights, self.embedding, self._own_logits))

    @cached_property
    def _frequencies(self) -> Float[Tensor, "R"]:
        return self.shape.layer.frequencies.to(self.embedding.device)

    def _times(self, rows: Float[Tensor, "N A"], name: str) -> Float[Tensor, "N B"]:
        return functional.linear(rows, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _normed(self, rows: Float[Tensor, "*N X"], name: str) -> Float[Tensor, "*N X"]:
        return rms_normed(rows, self.weights[f"{name}.weight"], self.shape.layer.norm_eps)


def convolved(rows: Float[Tensor, "R X"], kernels: Float[Tensor, "R T X"], size: int) -> Float[Tensor, "R X"]:
    """Causal convolution over the rows of blocks of `size` rows: output row i is a sum over all t for which row i - t
    is in the same block; the terms are `kernels[i, t] * rows[i - t]`.
    """
    taps = kernels.shape[1]
    padded = functional.pad(rows.unflatten(0, (-1, size)), (0, 0, taps - 1, 0))
    shifted = [padded[:, taps - 1 - tap :][:, :size].flatten(0, 1) for tap in range(taps)]
    return torch.stack([kernels[:, tap] * before for tap, before in enumerate(shifted)]).sum(0)
