"""A Hugging Face module as a `Forward` that gives the module neither tree masks nor cached rows.

Each pass computes the root-to-leaf paths through its rows as a batch, in copies of the module's own cache. A node is
computed once for each path through it, and copies take time and memory, so this is slower than a pass with one row per
node.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.hf import cache_argument, takes_positions
from decoder.forward.kv_cache import KvCache
from decoder.forward.recurrent.paths import path_batch, with_parents
from decoder.forward.whole_paths.module_cache import in_batch, record, shortened
from decoder.forward.whole_paths.path_cache import PathCache, PathPass


class PathForward:
    """A module as a `Forward` that computes whole paths."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._layers: int = module.config.get_text_config().num_hidden_layers
        self._device = next(module.parameters()).device
        self._cache_argument = cache_argument(module)
        self._takes_positions = takes_positions(module)

    def new_cache(self, capacity: int) -> PathCache:
        """See `Forward`."""
        return PathCache(self._layers, capacity, self._catch_up)

    def forward(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        positions: Sequence[int],  # noqa: ARG002 - found from the paths
        visible: NDArray[np.bool_],
    ) -> Float[Tensor, "N V"]:
        """See `Forward`."""
        held = cast("PathCache", cache)
        self._catch_up(held)
        first = held.used - held.length
        held.parents = with_parents(held.parents[:first], visible)
        held.tokens[first:] = tokens
        batch = path_batch(held.parents, first)
        ids = np.array(held.tokens)[batch.padded]
        begun = held.state is not None
        logits, state = self._computed(in_batch(held.state, len(ids)) if begun else None, ids, held.length)
        # A cache that this pass has made cannot be shortened, since a new cache does not record its first pass.
        held.latest = PathPass(state, batch.paths, ids.shape[1]) if begun else None
        held.used += len(tokens)
        return logits.flatten(0, 1)[torch.from_numpy(batch.places).to(self._device)]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        """See `Forward`."""
        held = cast("PathCache", cache)
        held.text += tokens
        held.forget()
        return self._read(held)

    def _catch_up(self, cache: PathCache) -> None:
        """Reads the committed tokens that the module's cache lacks."""
        if cache.read < cache.length:
            self._read(cache)

    def _read(self, cache: PathCache) -> Float[Tensor, "V"]:
        new = cache.state is None
        logits, cache.state = self._computed(cache.state, np.array([cache.text[cache.read :]]), cache.read)
        cache.read = len(cache.text)
        if new:
            record(cache.state)
        shortened(cache.state, 0)
        return logits[0, -1]

    @torch.inference_mode()
    def _computed(self, state: Any, tokens: Int[np.ndarray, "B T"], start: int) -> tuple[Float[Tensor, "B T V"], Any]:
        """Logits after each token of B continuations of a text of `start` tokens, and the module's cache at the end."""
        given = {"input_ids": torch.from_numpy(tokens).to(self._device)}
        if self._takes_positions:
            given["position_ids"] = torch.arange(start, start + tokens.shape[1], device=self._device).expand(
                len(tokens), -1
            )
        output = self._module(use_cache=True, **{self._cache_argument: state}, **given)
        return output.logits, getattr(output, self._cache_argument)
