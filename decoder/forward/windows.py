"""Attention windows by position: which keys a query attends to in the layers of each type.

All keys stay in the cache, and the mask hides the keys outside a window: nodes of a draft tree at one depth have the
same position, and so the same window. Pure functions of positions and of a configuration's fields; knows neither caches
nor modules.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from decoder.forward.families.architecture import longest_text

T = TypeVar("T")
FULL = "full_attention"
ATTENTION_OF: Mapping[str, str] = {"hybrid": FULL, "hybrid_sliding": "sliding_attention"}
"""Layer types that attend to cached keys and keep a state too, with the type of their attention."""
WINDOWED = "layers with attention windows need masks of their own, and a CUDA graph has one mask"
SHAPED = "keys and values differ in shape, and a CUDA graph stores those of all layers in one tensor"
"""Reasons why passes are not captured as CUDA graphs."""
Within = Callable[[Int[NDArray[np.int64], "N"], Int[NDArray[np.int64], "S"], int], Bool[NDArray[np.bool_], "N S"]]
"""(positions of queries, positions of keys, size in tokens) -> whether a key is within the query's window."""


def sliding(
    queries: Int[NDArray[np.int64], "N"], keys: Int[NDArray[np.int64], "S"], size: int
) -> Bool[NDArray[np.bool_], "N S"]:
    """Keys of the `size` latest positions, the query's own included; causality is left to the tree mask."""
    return np.greater(keys, queries[:, None] - size)


def chunked(
    queries: Int[NDArray[np.int64], "N"], keys: Int[NDArray[np.int64], "S"], size: int
) -> Bool[NDArray[np.bool_], "N S"]:
    """Keys of the query's chunk: the text is divided into chunks of `size` positions."""
    return np.equal(keys // size, queries[:, None] // size)


@dataclass(frozen=True)
class Limit:
    """A kind of attention window: the configuration field of its size, its name in messages, and its mask."""

    field: str
    name: str
    within: Within


LIMITS: Mapping[str, Limit] = {
    "sliding_attention": Limit("sliding_window", "a sliding window", sliding),
    "chunked_attention": Limit("attention_chunk_size", "chunks", chunked),
}
"""Attention windows by layer type; the types are named as in configurations."""


@dataclass(frozen=True)
class Windows:
    """Attention windows of a model that are shorter than its context."""

    sizes: Mapping[str, int]
    """Size in tokens by layer type; empty if all layers attend to the whole text."""
    layers: Sequence[str]
    """Type of the attention of each cached layer."""

    def masks(
        self,
        seen: Bool[NDArray[np.bool_], "N S"],
        queries: Int[NDArray[np.int64], "N"],
        keys: Int[NDArray[np.int64], "S"],
    ) -> Mapping[str, Bool[NDArray[np.bool_], "N S"]]:
        """Mask of each layer type, from the mask `seen` of full attention and the positions of queries and keys."""
        if not self.sizes:
            return {FULL: seen}
        return {
            kind: seen & LIMITS[kind].within(queries, keys, self.sizes[kind]) if kind in self.sizes else seen
            for kind in dict.fromkeys(self.layers)
        }


def first_seen(mask: Bool[NDArray[np.bool_], "N S"]) -> int:
    """Index of the first key to which any query attends; attention need not read earlier keys."""
    return int(mask.any(0).argmax())


def windows_of(config: Any) -> Windows:
    """Windows of a configuration; a window at least as long as the context limits no text, so it is left out."""
    kinds = attention_types(config)
    sizes = {kind: max(window_sizes(config, kind), default=0) for kind in LIMITS if kind in kinds}
    longest = longest_text(config)
    return Windows({kind: size for kind, size in sizes.items() if size < longest}, cached(config, kinds))


def layer_types(config: Any) -> Sequence[str]:
    """Type of each layer; a configuration that names no types has one type for all layers."""
    if named := getattr(config, "layer_types", None):
        return tuple(named)
    # A field that the family does not declare, for example in a checkpoint that was converted, limits nothing.
    declared = "sliding_window" in inspect.signature(type(config).__init__).parameters
    window = declared and getattr(config, "use_sliding_window", True) and any(by_layers(config, "sliding_window"))
    return ("sliding_attention" if window else FULL,) * (getattr(config, "num_hidden_layers", None) or 1)


def attention_types(config: Any) -> Sequence[str]:
    """Type of each layer's attention; of a layer without attention, the layer's type."""
    return tuple(ATTENTION_OF.get(kind, kind) for kind in layer_types(config))


def cached(config: Any, of_layers: Sequence[T]) -> Sequence[T]:
    """Values of all cached layers, from those of the module's layers.

    A module that computes some layers in a loop caches them again in each repetition, after all other layers.
    """
    first, end, repetitions = _loop(config)
    return (*of_layers, *[*of_layers[first:end]] * (repetitions - 1))


def _loop(config: Any) -> tuple[int, int, int]:
    """First layer of a configuration's loop, the layer after its last one, and the number of repetitions."""
    if hasattr(config, "loop_num_passes"):
        return config.loop_layer_index_start, config.loop_layer_index_end, config.loop_num_passes
    if getattr(config, "recurrent_kv_cache_mode", None) == "per_loop":
        return config.n_input_layers, config.n_input_layers + config.n_recurrent_layers, config.n_recurrent_loops
    return 0, 0, 1


def window_sizes(config: Any, kind: str) -> set[Any]:
    """Window sizes of all layers whose attention has a type; more than one size if the layers differ."""
    field, kinds = LIMITS[kind].field, attention_types(config)
    sizes = by_layers(config, field)
    if len(sizes) == len(kinds):
        sizes = [size for size, own in zip(sizes, kinds, strict=True) if own == kind]
    return {size or 0 for size in sizes}


def by_layers(config: Any, field: str) -> list[Any]:
    """Values of a configuration field for each layer; a single value where all layers share it."""
    try:
        value = getattr(config, field, None)
    except RuntimeError:  # transformers raises it where the layers have different values
        return [getattr(layer, field, None) for layer in config.per_layer_config]
    return list(value) if isinstance(value, list | tuple) else [value]
