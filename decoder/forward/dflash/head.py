"""Network of a DFlash head in plain torch, on any device, in the head's dtype.

Rows of the text are computed from the target's states alone: all layers compute their keys and values from the same
row. A block (the text's last token, then mask tokens) attends to the text and to itself; its rows predict all tokens of
the block at once. The keys and values of a block are dropped after its pass. Knows neither trees nor texts.
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

Convolve = Callable[[Float[Tensor, "B X"]], Float[Tensor, "B X"]]


@dataclass(frozen=True, eq=False)
class Block:
    """A block after its pass."""

    anchor: int
    """The text's last token, which is the block's first row."""
    rows: Sequence[Row]
    """The rows that predict tokens, one for each level of a tree."""
    memory: Float[Tensor, "1 R"]
    """Memory of the correction before the first of these rows."""


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
        """Kind of the head in words."""
        return self.shape.kind

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the head's passes."""
        return self.embedding.dtype

    def new_cache(self, capacity: int) -> KvCache:
        """An empty KV cache of `capacity` rows of text, and room for a block."""
        arch = self.shape.layer
        rows = capacity + self.shape.block_size
        size = (arch.num_hidden_layers, 2, arch.num_key_value_heads, rows, arch.head_dim)
        return KvCache(torch.zeros(size, dtype=self.dtype, device=self.embedding.device))

    def read(self, cache: KvCache, states: Float[Tensor, "N Y"]) -> None:
        """Appends and commits rows of text, each from the concatenated target states at one token."""
        end = cache.length + len(states)
        cache.reserve(end + self.shape.block_size)
        rows = self._normed(self._times(states.to(self.embedding), "fc"), "hidden_norm")
        for layer in range(self.shape.layer.num_hidden_layers):
            self._store(layer, rows, cache, range(cache.length, end))
        cache.length = cache.used = end

    def block(self, cache: KvCache, anchor: int) -> Block:
        """One pass over the block that begins with the token `anchor`, which follows the rows of the text."""
        shape, start = self.shape, cache.length
        positions = range(start, start + shape.block_size)
        tokens = torch.tensor([anchor] + [shape.mask_token] * (shape.block_size - 1), device=self.embedding.device)
        rows = self.embedding[tokens] * shape.embedding_scale
        for layer in range(shape.layer.num_hidden_layers):
            rows = self._layer(layer, rows, cache, positions)
        hidden = self._normed(rows, "norm")
        logits = self._own_logits(hidden)
        predicting = [Row(*parts) for parts in zip(rows, hidden, logits, strict=True)]
        memory = rows.new_zeros((1, memory_width(shape)))
        if shape.from_anchor:
            return Block(anchor, predicting, memory)
        # The first row predicts nothing, but a path's memory begins with it.
        if self._correct is not None and memory.shape[1]:
            _, memory = self._correct(predicting[0], tokens[:1], memory)
        return Block(anchor, predicting[1:], memory)

    def logits(
        self, row: Row, tokens: Sequence[int], memory: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "M V"], Float[Tensor, "N R"]]:
        """Logits of a block's row after each of N tokens, over the target's token ids; a single row of logits if the
        row does not depend on the token before. Also returns the memory of the N paths for the next row.
        """
        if self._correct is None:
            own = row.logits[None]
        else:
            own, memory = self._correct(row, torch.tensor(tokens, device=row.logits.device), memory)
        return over_target_ids(own, self.tokens, self.shape.layer.vocab_size), memory

    def _layer(self, layer: int, rows: Float[Tensor, "B X"], cache: KvCache, positions: range) -> Float[Tensor, "B X"]:
        at = f"layers.{layer}"
        given, finish = self._convolved(self._normed(rows, f"{at}.input_layernorm"), f"{at}.attention_conv")
        rows = rows + finish(self._attended(layer, given, cache, positions))
        given, finish = self._convolved(self._normed(rows, f"{at}.post_attention_layernorm"), f"{at}.mlp_conv")
        matrices = (self.weights[f"{at}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return rows + finish(gated(given, *matrices))

    def _attended(
        self, layer: int, rows: Float[Tensor, "B X"], cache: KvCache, positions: range
    ) -> Float[Tensor, "B X"]:
        at, arch = f"layers.{layer}.self_attn", self.shape.layer
        queries = self._normed(self._heads(rows, f"{at}.q", arch.num_attention_heads), f"{at}.q_norm")
        self._store(layer, rows, cache, positions)
        mask = self._mask(layer, positions)
        keys, values = cache.store[layer, :, None, :, : positions.stop]
        attended = functional.scaled_dot_product_attention(
            rotated(queries, positions, self._frequencies)[None],
            keys,
            values,
            attn_mask=None if mask is None else mask.to(rows.device),
            enable_gqa=True,
        )
        return self._times(attended[0].transpose(0, 1).flatten(1), f"{at}.o_proj")

    def _store(self, layer: int, rows: Float[Tensor, "N X"], cache: KvCache, positions: range) -> None:
        """Writes keys and values of rows at these positions, which are also their indices in the cache."""
        at, heads = f"layers.{layer}.self_attn", self.shape.layer.num_key_value_heads
        keys = self._normed(self._heads(rows, f"{at}.k", heads), f"{at}.k_norm")
        kept = cache.store[layer, :, :, positions.start : positions.stop]
        kept[0] = rotated(keys, positions, self._frequencies)
        kept[1] = self._heads(rows, f"{at}.v", heads)

    def _mask(self, layer: int, positions: range) -> Bool[Tensor, "B S"] | None:
        """Which rows of text and block each row of the block attends to; None if it attends to all."""
        window, causal = self.shape.window(layer), self.shape.causal[layer]
        if window is None and not causal:
            return None
        start, rows, keys = positions.start, torch.tensor(positions)[:, None], torch.arange(positions.stop)
        seen = torch.ones((len(positions), positions.stop), dtype=torch.bool)
        if causal:
            seen &= keys <= rows
        if window is not None and self.shape.fixed_window:
            seen &= keys >= start - window
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

    def _convolved(self, rows: Float[Tensor, "B X"], name: str) -> tuple[Float[Tensor, "B X"], Convolve]:
        """The convolved input of a sublayer, and the convolution of its output; without convolutions both are left as
        they are.
        """
        convolution = self.shape.convolution
        if convolution is None:
            return rows, lambda output: output
        base = self.weights[f"{name}.base_kernel"]
        dynamic = self._times(rows, f"{name}.kernel_projection").view(len(rows), 2, convolution.taps, -1)
        kernels = base + dynamic.repeat_interleave(convolution.group, -1)
        return convolved(rows, kernels[:, 0]), lambda output: convolved(output, kernels[:, 1])

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


def convolved(rows: Float[Tensor, "B X"], kernels: Float[Tensor, "B T X"]) -> Float[Tensor, "B X"]:
    """Causal convolution over the rows of a block: row i becomes the sum of row i - t times kernel t of row i."""
    taps = kernels.shape[1]
    padded = functional.pad(rows, (0, 0, taps - 1, 0))
    return torch.stack([kernels[:, tap] * padded[taps - 1 - tap :][: len(rows)] for tap in range(taps)]).sum(0)
