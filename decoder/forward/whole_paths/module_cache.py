"""A cache that a Hugging Face module made for itself: copied for a batch, reduced to one text, and shortened.

Most modules use a cache class of transformers; some have a class of their own, or a list of states. Knows neither
trees nor paths.
"""

import copy
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicLayer

from decoder.forward.recurrent.tensors import replaced, tensors_of


def in_batch(cache: Any, count: int) -> Any:
    """A copy of one text's cache, for `count` texts that all begin with this text; `cache` itself is unchanged."""
    return _selected(cache, torch.zeros(count, dtype=torch.long))


def one_of(cache: Any, number: int) -> Any:
    """A copy of a batch's cache that holds only the text with index `number`."""
    return _selected(cache, torch.tensor([number]))


def record(cache: Any) -> None:
    """Switches on recording in a new cache, as `shortened` requires; from then on, `shortened` must be called after
    each pass.
    """
    if _shortens(cache):
        cache.activate_past_recording()


def shortened(cache: Any, count: int) -> bool:
    """Removes the last `count` tokens of the latest pass; False if the cache cannot remove them, for example if it
    holds states.
    """
    if not _shortens(cache):
        return count == 0
    cache.crop(-count)
    return True


def keeps_all(cache: Any) -> bool:
    """Whether a cache can be shortened to any length: all its layers keep the rows of the whole text."""
    return _shortens(cache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def nbytes(cache: Any) -> int:
    """Bytes of a cache's tensors."""
    return sum(tensor.nbytes for tensor in tensors_of(_contents(cache)))


def _shortens(cache: Any) -> bool:
    """Whether the last tokens can be removed.

    A family's own cache layer class may inherit a method `crop` that removes only keys and values, which is wrong if
    the class caches more than these. So such a class is trusted only if it has a method `crop` of its own.
    """
    return (
        isinstance(cache, Cache)
        and bool(getattr(cache, "layers", None))
        and cache.is_croppable
        and all(type(layer).__module__ == cache_utils.__name__ or "crop" in vars(type(layer)) for layer in cache.layers)
    )


def _selected(cache: Any, rows: Int[Tensor, "B"]) -> Any:
    """A copy of the cache that holds only the texts at indices `rows`."""
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
