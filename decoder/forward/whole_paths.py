"""A form for Hugging Face modules that take no tree mask and use their own cache. Each pass computes the root-to-leaf
paths through its rows as a batch, in copies of this cache, so it is slower than a pass with one row per node. `keep`
takes the copy of the accepted path and removes all tokens after the path; if the cache cannot be shortened, or if an
earlier pass computed the path, the accepted tokens are read again before the next pass.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicLayer

from decoder.forward.hf import cache_argument, takes_positions
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward, Ints, Mask
from decoder.forward.recurrent.owners import replaced, tensors_of
from decoder.forward.recurrent.states import path_batch, with_parents


def in_batch(cache: Any, count: int) -> Any:
    """A copy of one text's cache, for `count` texts that all begin with this text."""
    return _selected(cache, torch.zeros(count, dtype=torch.long))


def one_of(cache: Any, number: int) -> Any:
    """A copy of the part of a batch's cache that belongs to text `number`."""
    return _selected(cache, torch.tensor([number]))


def record(cache: Any) -> None:
    """Makes a new cache record its past, which `shortened` needs; `shortened` must then be called after each pass."""
    if _shortens(cache):
        cache.activate_past_recording()


def shortened(cache: Any, count: int) -> bool:
    """Removes the last `count` tokens of the latest pass; False if this is impossible, for example due to states."""
    if not _shortens(cache):
        return count == 0
    cache.crop(-count)
    return True


def keeps_all(cache: Any) -> bool:
    """Whether a cache can be shortened to any length."""
    return _shortens(cache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def nbytes(cache: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors_of(_contents(cache)))


def _shortens(cache: Any) -> bool:
    """Whether a cache can be shortened. A family's own class of cache layers must define its own method `crop`: the
    inherited method removes only keys and values, which is wrong if the class caches more.
    """
    return (
        isinstance(cache, Cache)
        and bool(getattr(cache, "layers", None))
        and cache.is_croppable
        and all(type(layer).__module__ == cache_utils.__name__ or "crop" in vars(type(layer)) for layer in cache.layers)
    )


def _selected(cache: Any, rows: Int[Tensor, "B"]) -> Any:
    contents = _contents(cache)
    if isinstance(cache, Cache):
        # The copy shares the tensors of `cache` until `reorder_cache` makes new tensors.
        twin = copy.deepcopy(cache, {id(tensor): tensor for tensor in tensors_of(contents)})
        twin.reorder_cache(cast("torch.LongTensor", rows))
        return twin
    chosen = replaced(
        contents, lambda each: each.index_select(0, rows.to(each.device)) if isinstance(each, Tensor) else each
    )
    if contents is cache:
        return chosen
    twin = copy.copy(cache)
    vars(twin).update(chosen)
    return twin


def _contents(cache: Any) -> Any:
    """Nested lists and dictionaries that contain all tensors of a cache."""
    if isinstance(cache, list | tuple | dict):
        return cache
    layers = getattr(cache, "layers", None)
    return vars(cache) if layers is None else [vars(layer) for layer in layers]


@dataclass(frozen=True)
class PathPass:
    state: Any
    """The module's cache after all paths, as a batch."""
    paths: Sequence[Sequence[int]]
    longest: int
    """Number of tokens that the pass computed for each path."""

    def after(self, path: Sequence[int]) -> Any | None:
        """Cache after `path`; None if no path of the pass begins with `path`, or if later tokens cannot be removed."""
        number = next((each for each, known in enumerate(self.paths) if list(known[: len(path)]) == list(path)), None)
        if number is None:
            return None
        state = one_of(self.state, number)
        return state if shortened(state, self.longest - len(path)) else None


class PathCache(KvCache):
    """Stores tokens and the module's own cache; the tensor of `KvCache` stays empty."""

    def __init__(self, layers: int, capacity: int, catch_up: Callable[["PathCache"], None]) -> None:
        super().__init__(torch.zeros((layers, 2, 0, capacity, 0)))
        self.text: list[int] = []
        self.state: Any = None
        """The module's cache; None before its first pass."""
        self.read = 0
        """Number of committed tokens in `state`."""
        self.tokens: list[int] = []
        self.parents: list[int] = []
        """Parents of the drafted rows; see `with_parents`."""
        self.latest: PathPass | None = None
        self._catch_up = catch_up

    @property
    def nbytes(self) -> int:
        return nbytes(self.state) if self.read else 0

    def keep(self, rows: Sequence[int]) -> None:
        """The rows must be a path that begins directly after the committed text."""
        path = [row - self.length for row in rows]
        self.text += [self.tokens[row] for row in path]
        after = self.latest.after(path) if self.latest and path else None
        if after is not None:
            self.state, self.read = after, len(self.text)
        self.forget()

    def forget(self) -> None:
        """Drops all drafted rows."""
        self.length = self.used = len(self.text)
        self.tokens, self.parents, self.latest = [], [], None

    def cut(self, length: int) -> None:
        """If the module's cache cannot be shortened to `length`, the next pass makes a new cache."""
        if length < self.read:
            if keeps_all(self.state) and shortened(self.state, self.read - length):
                self.read = length
            else:
                self.state, self.read = None, 0
        self.text = self.text[:length]
        self.forget()

    def assume(self, length: int) -> None:
        self.cut(length)
        self.text += [0] * (length - len(self.text))
        self.forget()
        self._catch_up(self)


class PathForward(Forward):
    def __init__(self, module: Any) -> None:
        self._module = module
        self._layers: int = module.config.get_text_config().num_hidden_layers
        self._device = next(module.parameters()).device
        self._cache_argument = cache_argument(module)
        self._takes_positions = takes_positions(module)

    def new_cache(self, capacity: int) -> PathCache:
        return PathCache(self._layers, capacity, self._catch_up)

    def forward(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        positions: Ints,  # noqa: ARG002 - found from the paths
        visible: Mask,
    ) -> Float[Tensor, "N V"]:
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
        """Logits of B continuations of a text of `start` tokens, and the module's cache at the end."""
        given = {"input_ids": torch.from_numpy(tokens).to(self._device)}
        if self._takes_positions:
            given["position_ids"] = torch.arange(start, start + tokens.shape[1], device=self._device).expand(
                len(tokens), -1
            )
        output = self._module(use_cache=True, **{self._cache_argument: state}, **given)
        return output.logits, getattr(output, self._cache_argument)
