"""Any Hugging Face module as a `Forward`, with a mask and positions of its caller's: the general implementation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache

from decoder.forward.kv_cache import KvCache

Put = Callable[
    [int, Float[Tensor, "H N D"], Float[Tensor, "H N D"]], tuple[Float[Tensor, "H S D"], Float[Tensor, "H S D"]]
]
"""(layer, its new keys, its new values) -> keys and values that attention may read, the new ones among them."""


class Layers(Cache):
    """Keys and values as a module asks for them, layer by layer."""

    def __init__(self, put: Put, rows: int) -> None:
        """Takes what keeps them.

        Args:
            put: Called by each layer.
            rows: What the pass finds.
        """
        super().__init__(layers=[])
        self._put, self._rows = put, rows

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Hands over this layer's new rows and returns what attention may read; shapes (1, H, rows, D)."""
        keys, values = self._put(layer_idx, key_states[0], value_states[0])
        return keys[None], values[None]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 - all layers have the same rows
        """Rows that the pass finds."""
        return self._rows


def appending(cache: KvCache) -> Layers:
    """What appends a pass's rows to those in use; the cursor stays where it is."""

    def put(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if keys.shape != values.shape:
            raise ValueError(f"keys and values differ in shape: {tuple(keys.shape)}, {tuple(values.shape)}")
        heads, rows, width = keys.shape
        layers, _, known, capacity, _ = cache.store.shape
        if not known:
            cache.hold(keys.new_zeros((layers, 2, heads, capacity, width)))
        held, end = cache.store[layer], cache.used + rows
        held[0, :, cache.used : end] = keys
        held[1, :, cache.used : end] = values
        return held[0, :, :end], held[1, :, :end]

    return Layers(put, cache.used)


def unknown_cache(layers: int, capacity: int) -> KvCache:
    """An empty cache of a model whose keys and values only its first pass shows."""
    return KvCache(torch.zeros((layers, 2, 0, capacity, 0)))


def logits_of(
    module: Any,
    tokens: Int[Tensor, "N"],
    positions: Int[Tensor, "N"],
    bias: Float[Tensor, "N S"],
    layers: Layers,
) -> Float[Tensor, "N V"]:
    """One pass of a module; `bias` is added to the scores of what each row looks at."""
    output = module(
        input_ids=tokens[None],
        position_ids=positions[None],
        attention_mask=bias[None, None],
        past_key_values=layers,
        use_cache=True,
    )
    logits: Tensor = output.logits[0]
    return logits


class ModuleForward:
    """A Hugging Face module, with a mask and positions of its caller's."""

    def __init__(self, module: Any) -> None:
        weight = next(module.parameters())
        self._module = module
        self._layers: int = module.config.get_text_config().num_hidden_layers
        self._device = weight.device
        self._dtype = weight.dtype

    def new_cache(self, capacity: int) -> KvCache:
        """See `Forward`."""
        return unknown_cache(self._layers, capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        rows, recent = visible.shape
        end = cache.used + rows
        bias = torch.zeros((rows, end), dtype=self._dtype)
        bias[:, end - recent :].masked_fill_(torch.from_numpy(~visible), torch.finfo(self._dtype).min)
        given, places = (torch.tensor(ids, device=self._device) for ids in (tokens, positions))
        logits = logits_of(self._module, given, places, bias.to(self._device), appending(cache))
        cache.used = end
        return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits
