"""llama.cpp as a `Forward`: one pass verifies a tree, and a KV cache is a context of llama.cpp.

Logits are computed and returned in float32. Knows neither files nor tokenizers.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import KvCache
from decoder.forward.llama_cpp.cache import Contexts, LlamaCache
from decoder.forward.llama_cpp.context import Model
from decoder.forward.llama_cpp.paths import STATES
from decoder.forward.llama_cpp.row_cache import SEQUENCES, RowCache
from decoder.forward.llama_cpp.state_cache import StateCache


class LlamaForward:
    """A GGUF model as a `Forward`."""

    def __init__(self, model: Model, layers: int, device: torch.device, *, half: bool) -> None:
        """Wraps a model of `layers` layers; logits go to `device`. Keys and values are float16 if `half`."""
        self._contexts = Contexts(model, STATES if model.keeps_states else SEQUENCES, half=half)
        self._form = StateCache if model.keeps_states else RowCache
        self._layers, self._device = layers, device

    def new_cache(self, capacity: int) -> LlamaCache:
        """See `Forward`."""
        return self._form(self._contexts, self._layers, capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        logits = _own(cache).compute(tokens, positions, visible)
        return torch.from_numpy(logits).to(self._device)

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        return torch.from_numpy(_own(cache).read(tokens)).to(self._device)


def _own(cache: KvCache) -> LlamaCache:
    assert isinstance(cache, LlamaCache), "a forward form uses its own caches"  # noqa: S101 - a programmer's mistake
    return cache
