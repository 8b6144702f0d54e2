"""Properties of a model that its configuration determines: the longest text, attention windows, layers with states,
whether draft trees are computed as whole paths, and the size of a text's cache.
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
"""For each layer type with both attention and a state, the type of the attention."""
SHAPED = "keys and values differ in shape, and CUDA graphs need the keys and values of all layers in one tensor"
Array = TypeVar("Array", NDArray[Any], Tensor)
"""Positions or a mask, on the host or on a device."""


def sliding(queries: Array, keys: Array, size: int) -> Array:
    """True for keys in the query's window, and for all keys after the query, which the tree mask hides."""
    return keys > queries[:, None] - size


def chunked(queries: Array, keys: Array, size: int) -> Array:
    """True for keys in the query's chunk of the text."""
    same: Array = keys // size == queries[:, None] // size
    return same


@dataclass(frozen=True)
class Limit:
    """A kind of attention window: the configuration field of its size, its name in messages, and its mask."""

    field: str
    name: str
    within: Callable[[Any, Any, int], Any]
    """(positions of N queries, positions of S keys, size in tokens) -> mask, shape (N, S)."""


LIMITS: Mapping[str, Limit] = {
    SLIDING: Limit("sliding_window", "a sliding window", sliding),
    "chunked_attention": Limit("attention_chunk_size", "chunks", chunked),
}
"""Kinds of attention windows, by layer type as named in configurations."""


@dataclass(frozen=True)
class Windows:
    """Attention windows of a model's layers; windows at least as long as the model's context are left out."""

    sizes: Mapping[str, int]
    """Size of the window in tokens, for each layer type with a window."""
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
    """The mask of all keys, given the mask of the last M keys; every query attends to all earlier keys."""
    seen = np.ones((len(visible), keys), dtype=np.bool_)
    seen[:, keys - visible.shape[1] :] = visible
    return seen


def first_seen(mask: Bool[np.ndarray, "N S"]) -> int:
    """Index of the first key that any query attends to; attention need not read earlier keys."""
    return int(mask.any(0).argmax())


def windows_of(config: Any) -> Windows:
    kinds = attention_types(config)
    sizes = {kind: max(window_sizes(config, kind), default=0) for kind in LIMITS if kind in kinds}
    longest = longest_text(config)
    return Windows({kind: size for kind, size in sizes.items() if size < longest}, cached(config, kinds))


def layer_types(config: Any) -> Sequence[str]:
    """Type of each layer; if the configuration names no types, all layers have the same type."""
    if named := getattr(config, "layer_types", None):
        return tuple(named)
    # A window size that the family does not declare, for example from a converted checkpoint, is ignored.
    declared = "sliding_window" in inspect.signature(type(config).__init__).parameters
    window = declared and getattr(config, "use_sliding_window", True) and any(by_layers(config, "sliding_window"))
    return (SLIDING if window else FULL,) * (getattr(config, "num_hidden_layers", None) or 1)


def attention_types(config: Any) -> Sequence[str]:
    """Attention type of each layer; for a layer without attention, its layer type."""
    return tuple(ATTENTION_OF.get(kind, kind) for kind in layer_types(config))


def cached(config: Any, of_layers: Sequence[T]) -> Sequence[T]:
    """Values for the layers of the KV cache, given the values `of_layers` for the layers of the model. A looped model
    runs some layers several times and caches each repetition, so their values are appended for each further repetition.
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
    """Window sizes of all layers with attention of this type; 0 stands for a layer without a window."""
    field, kinds = LIMITS[kind].field, attention_types(config)
    sizes = by_layers(config, field)
    if len(sizes) == len(kinds):
        sizes = [size for size, own in zip(sizes, kinds, strict=True) if own == kind]
    return {size or 0 for size in sizes}


def by_layers(config: Any, field: str) -> list[Any]:
    """Values of a configuration field, one per layer; a single value if all layers share it."""
    try:
        value = getattr(config, field, None)
    except RuntimeError:  # transformers raises it where the layers have different values
        return [getattr(layer, field, None) for layer in config.per_layer_config]
    return list(value) if isinstance(value, list | tuple) else [value]


def longest_text(config: Any) -> int:
    """Length of the longest text, in tokens. Texts for which longrope would change the frequencies at all positions are
    excluded: cached keys keep their old rotation, so the output would depend on the number of rows in each pass.
    """
    named = next((length for name in LENGTHS if (length := getattr(config, name, None))), NO_LIMIT)
    original = getattr(config, "original_max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) or {}
    by_layers = [rotary, *(inner for inner in rotary.values() if isinstance(inner, dict))]
    switching = [each for each in by_layers if each.get("rope_type") == "longrope"]
    return min([named, *(each.get("original_max_position_embeddings") or original or named for each in switching)])


STATES = frozenset({"linear_attention", "conv", *ATTENTION_OF})
"""Layer types with a state; hybrid layers also attend to cached keys."""
NO_MEMORY = frozenset({"moe", "mlp"})
"""Layer types whose output at a row depends only on the input at the same row."""
MASKED = frozenset({FULL, "attention", "indexed_attention", *LIMITS})
"""Types of attention that take a mask; layers without attention must get no mask."""

HOST_ROUNDS = "layers with states need the host between passes, but a CUDA graph runs without the host"


def keeps_states(config: Any) -> bool:
    return bool(STATES.intersection(layer_types(config.get_text_config())))


FAMILIES = frozenset({"bloom", "deepseek_v4", "gpt_neo", "minimax_m3_vl_text", "mpt", "roformer", "rwkv", "xlstm"})
"""Model types that need whole paths: they derive positions from row numbers, or cache more than rows and states."""
UNCAPTURED = "a module that computes whole paths copies its cache in each pass, which a CUDA graph cannot do"


def takes_paths(text: Any) -> bool:
    """Whether the model type needs whole paths; `decoder.models.compatibility` finds further modules that need them."""
    return getattr(text, "model_type", None) in FAMILIES or bool(getattr(text, "alibi", False))


ROWLESS = frozenset({"linear_attention", "conv", "moe", "mlp"})
TWICE = frozenset({"mimo_v2_flash"})
"""Model types whose sliding layers have twice as many key-value heads as the configuration states."""
INDEXED = frozenset({"indexed_attention", "minimax_m3_sparse"})
"""Layer types that may also cache the keys of an indexer."""


def cache_bytes(config: Any, tokens: int, item_bytes: int) -> tuple[int, int]:
    """Bytes of all keys and values: in `KvCache`, and in ring buffers, which would drop rows outside the windows."""
    windows = windows_of(config)
    shared = getattr(config, "num_kv_shared_layers", None) or 0
    owners = windows.layers[: len(windows.layers) - shared]
    rows = [size * item_bytes for size, _ in zip(cached(config, _row_sizes(config)), owners, strict=False)]
    kept = [min(tokens, windows.sizes.get(kind, tokens)) for kind in owners]
    return tokens * sum(rows), sum(size * count for size, count in zip(rows, kept, strict=True))


def _row_sizes(config: Any) -> Sequence[int]:
    """Number of values that each layer caches for one token."""
    kinds, attention = layer_types(config), attention_types(config)
    if not any(by_layers(config, "num_attention_heads")):
        return [0] * len(kinds)
    attended = _latents(config, len(kinds)) or _keys_and_values(config, attention)
    return [
        0 if kind in ROWLESS else size + indexer
        for kind, size, indexer in zip(attention, attended, _indexer_keys(config, kinds), strict=True)
    ]


def _latents(config: Any, layers: int) -> list[int]:
    """Size of the vector that latent attention caches in place of keys and values, by layer; empty for other models."""
    if not any(by_layers(config, "kv_lora_rank")):
        return []
    parts = (_by_layer(config, field, [0] * layers) for field in ("kv_lora_rank", "qk_rope_head_dim"))
    return [latent + turned for latent, turned in zip(*parts, strict=True)]


def _keys_and_values(config: Any, kinds: Sequence[str]) -> list[int]:
    queries = _by_layer(config, "num_attention_heads", [1] * len(kinds))
    heads = _by_layer(config, "num_key_value_heads", _by_layer(config, "num_kv_heads", queries))
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        heads = [1] * len(kinds)
    widths = _by_layer(config, "head_dim", [config.hidden_size // own for own in queries])
    values = _by_layer(config, "v_head_dim", widths)
    every = [own * (key + value) for own, key, value in zip(heads, widths, values, strict=True)]
    in_windows = every
    if getattr(config, "model_type", None) in TWICE:
        in_windows = [2 * size for size in every]
    elif getattr(config, "swa_head_dim", None):
        in_windows = [2 * config.swa_num_key_value_heads * config.swa_head_dim] * len(kinds)
    return [
        narrow if kind == "sliding_attention" else size
        for kind, size, narrow in zip(kinds, every, in_windows, strict=True)
    ]


def _indexer_keys(config: Any, kinds: Sequence[str]) -> list[int]:
    heads = getattr(config, "indexer_kv_heads", None) or 1
    width = heads * (getattr(config, "index_head_dim", None) or getattr(config, "indexer_head_dim", None) or 0)
    own = getattr(config, "indexer_types", None) or ["full"] * len(kinds)
    return [width if kind in INDEXED and each == "full" else 0 for kind, each in zip(kinds, own, strict=True)]


def _by_layer(config: Any, field: str, usual: Sequence[int]) -> list[int]:
    """Value of a field for each layer; a layer whose value is missing or 0 gets its value from `usual`."""
    named = by_layers(config, field)
    values = named if len(named) == len(usual) else named * len(usual)
    return [value or other for value, other in zip(values, usual, strict=True)]
