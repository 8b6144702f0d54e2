"""Longest text of a model, and attention windows by position. A window depends on positions, not on rows of the cache,
since nodes of a draft tree at one depth have the same position and thus the same window. All keys stay in the cache,
and a mask hides the keys outside a window. Knows neither caches nor modules.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")
NO_LIMIT = 1 << 20
"""Context length in tokens if a model's configuration states none."""
LENGTHS = ("max_position_embeddings", "max_target_positions", "max_seq_len")
"""Configuration fields that may contain the context length; the first field present is used."""
FULL, SLIDING = "full_attention", "sliding_attention"
ATTENTION_OF: Mapping[str, str] = {"hybrid": FULL, "hybrid_sliding": SLIDING}
"""Type of the attention in layer types that also keep a state."""
SHAPED = "keys and values differ in shape, and CUDA graphs need the keys and values of all layers in one tensor"
Array = TypeVar("Array", NDArray[Any], Tensor)
"""Positions or a mask, on the host or on a device."""


def sliding(queries: Array, keys: Array, size: int) -> Array:
    """Keys after the query's position are within the window too; the tree mask hides them."""
    return keys > queries[:, None] - size


def chunked(queries: Array, keys: Array, size: int) -> Array:
    """True for keys in the query's chunk of the text."""
    same: Array = keys // size == queries[:, None] // size
    return same


@dataclass(frozen=True)
class Limit:
    """The configuration field of a window's size, its name in messages, and its mask."""

    field: str
    name: str
    within: Callable[[Any, Any, int], Any]
    """(positions of N queries, positions of S keys, size in tokens) -> mask, shape (N, S)."""


LIMITS: Mapping[str, Limit] = {
    SLIDING: Limit("sliding_window", "a sliding window", sliding),
    "chunked_attention": Limit("attention_chunk_size", "chunks", chunked),
}
"""By layer type, as named in configurations."""


@dataclass(frozen=True)
class Windows:
    """Windows at least as long as the model's context are left out."""

    sizes: Mapping[str, int]
    """In tokens, for each layer type with a window."""
    layers: Sequence[str]
    """Attention type of each cached layer."""

    def masks(
        self, seen: Bool[np.ndarray, "N S"], queries: Int[np.ndarray, "N"], keys: Int[np.ndarray, "S"]
    ) -> Mapping[str, Bool[np.ndarray, "N S"]]:
        """Mask of each layer type, from the mask `seen` of full attention."""
        if not self.sizes:
            return {FULL: seen}
        return {
            kind: seen & LIMITS[kind].within(queries, keys, self.sizes[kind]) if kind in self.sizes else seen
            for kind in dict.fromkeys(self.layers)
        }


def whole_mask(visible: Bool[np.ndarray, "N M"], keys: int) -> Bool[np.ndarray, "N S"]:
    """From the mask of the last M keys; every query attends to all keys before them."""
    seen = np.ones((len(visible), keys), dtype=np.bool_)
    seen[:, keys - visible.shape[1] :] = visible
    return seen


def first_seen(mask: Bool[np.ndarray, "N S"]) -> int:
    """Attention need not read earlier keys."""
    return int(mask.any(0).argmax())


def windows_of(config: Any) -> Windows:
    kinds = attention_types(config)
    sizes = {kind: max(window_sizes(config, kind), default=0) for kind in LIMITS if kind in kinds}
    longest = longest_text(config)
    return Windows({kind: size for kind, size in sizes.items() if size < longest}, cached(config, kinds))


def layer_types(config: Any) -> Sequence[str]:
    """A configuration that names no types has one type for all layers."""
    if named := getattr(config, "layer_types", None):
        return tuple(named)
    # A window size that the family does not declare, for example from a converted checkpoint, is ignored.
    declared = "sliding_window" in inspect.signature(type(config).__init__).parameters
    window = declared and getattr(config, "use_sliding_window", True) and any(by_layers(config, "sliding_window"))
    return (SLIDING if window else FULL,) * (getattr(config, "num_hidden_layers", None) or 1)


def attention_types(config: Any) -> Sequence[str]:
    """For a layer without attention, the type of the layer."""
    return tuple(ATTENTION_OF.get(kind, kind) for kind in layer_types(config))


def cached(config: Any, of_layers: Sequence[T]) -> Sequence[T]:
    """Values for all cached layers: layers in a loop are cached again in each repetition, after all other layers."""
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
    """Of all layers with attention of this type; a layer without a window has size 0."""
    field, kinds = LIMITS[kind].field, attention_types(config)
    sizes = by_layers(config, field)
    if len(sizes) == len(kinds):
        sizes = [size for size, own in zip(sizes, kinds, strict=True) if own == kind]
    return {size or 0 for size in sizes}


def by_layers(config: Any, field: str) -> list[Any]:
    """One value if all layers share it."""
    try:
        value = getattr(config, field, None)
    except RuntimeError:  # transformers raises it where the layers have different values
        return [getattr(layer, field, None) for layer in config.per_layer_config]
    return list(value) if isinstance(value, list | tuple) else [value]


def longest_text(config: Any) -> int:
    """In tokens. For longer texts, longrope uses other frequencies at all positions, but cached keys keep the old ones;
    the text would then depend on the number of rows in each pass.
    """
    named = next((length for name in LENGTHS if (length := getattr(config, name, None))), NO_LIMIT)
    original = getattr(config, "original_max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) or {}
    by_layers = [rotary, *(inner for inner in rotary.values() if isinstance(inner, dict))]
    switching = [each for each in by_layers if each.get("rope_type") == "longrope"]
    return min([named, *(each.get("original_max_position_embeddings") or original or named for each in switching)])
