"""Any Hugging Face module as a `Forward`: the general implementation, with a mask and positions of its caller's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.kv_cache import TreeCache


class ModuleForward:
    """A Hugging Face module, with a mask and positions of its caller's."""

    def __init__(self, module: Any) -> None:
        weight = next(module.parameters())
        self._module = module
        self._layers: int = module.config.get_text_config().num_hidden_layers
        self._device = weight.device
        self._dtype = weight.dtype

    def new_cache(self, capacity: int) -> TreeCache:
        """See `Forward`."""
        return TreeCache(self._layers, capacity)

    def forward(
        self, cache: TreeCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        rows, recent = visible.shape
        end = cache.used + rows
        mask = torch.zeros((rows, end), dtype=self._dtype)
        mask[:, end - recent :].masked_fill_(torch.from_numpy(~visible), torch.finfo(self._dtype).min)
        output = self._module(
            input_ids=torch.tensor([tokens], device=self._device),
            position_ids=torch.tensor([positions], device=self._device),
            attention_mask=mask.to(self._device)[None, None],
            past_key_values=cache,
            use_cache=True,
        )
        cache.used = end
        logits: Tensor = output.logits[0]
        return logits

    def read(self, cache: TreeCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits
