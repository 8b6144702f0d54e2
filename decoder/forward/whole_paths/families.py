"""Families whose modules are known to compute plain paths only, by their configurations. Pure."""

from typing import Any

FAMILIES = frozenset({"bloom", "deepseek_v4", "gpt_neo", "minimax_m3_vl_text", "mpt", "roformer", "rwkv", "xlstm"})
"""Model types whose positions follow from row numbers, or whose caches have other things than rows and states."""
UNCAPTURED = "a module that computes whole paths copies its cache in each pass, and a CUDA graph cannot"
"""Reason why passes by whole paths are not captured as CUDA graphs."""


def takes_paths(text: Any) -> bool:
    """Whether modules with this configuration of text compute a draft tree as whole paths; the probe finds more."""
    return getattr(text, "model_type", None) in FAMILIES or bool(getattr(text, "alibi", False))
