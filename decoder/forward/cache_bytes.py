"""Size of a text's cache in bytes, computed from a configuration alone by counting the numbers cached per token. The
tests compare the results with the caches of tiny models of all families.
"""

from collections.abc import Sequence
from typing import Any

from decoder.forward.windows import attention_types, by_layers, cached, layer_types, windows_of

ROWLESS = frozenset({"linear_attention", "conv", "moe", "mlp"})
TWICE = frozenset({"mimo_v2_flash"})
"""Model types whose sliding layers have twice as many key-value heads as the configuration states."""
INDEXED = frozenset({"indexed_attention", "minimax_m3_sparse"})
"""Layer types that may also cache the keys of an indexer."""


def cache_bytes(config: Any, tokens: int, item_bytes: int) -> tuple[int, int]:
    """Bytes of all keys and values, as our cache stores them; and without those that ring buffers would drop."""
    windows = windows_of(config)
    shared = getattr(config, "num_kv_shared_layers", None) or 0
    owners = windows.layers[: len(windows.layers) - shared]
    rows = [size * item_bytes for size, _ in zip(cached(config, _row_sizes(config)), owners, strict=False)]
    kept = [min(tokens, windows.sizes.get(kind, tokens)) for kind in owners]
    return tokens * sum(rows), sum(size * count for size, count in zip(rows, kept, strict=True))


def _row_sizes(config: Any) -> Sequence[int]:
    """How many numbers each layer caches for one token."""
    kinds, attention = layer_types(config), attention_types(config)
    if not any(by_layers(config, "num_attention_heads")):
        return [0] * len(kinds)
    attended = _latents(config, len(kinds)) or _keys_and_values(config, attention)
    return [
        0 if kind in ROWLESS else size + indexer
        for kind, size, indexer in zip(attention, attended, _indexer_keys(config, kinds), strict=True)
    ]


def _latents(config: Any, layers: int) -> list[int]:
    """The same with latent attention, which caches one vector in place of keys and values; empty for other models."""
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
    """A layer whose value is missing or 0 gets its value from `usual`."""
    named = by_layers(config, field)
    values = named if len(named) == len(usual) else named * len(usual)
    return [value or other for value, other in zip(values, usual, strict=True)]
