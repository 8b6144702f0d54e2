"""Families whose modules are known to take no tree mask, so that they compute whole paths. Pure functions."""

from typing import Any

FAMILIES = frozenset({"bloom", "deepseek_v4", "gpt_neo", "minimax_m3_vl_text", "mpt", "roformer", "rwkv", "xlstm"})
"""Model types whose positions follow from row numbers, or whose caches hold more than rows and states."""
UNCAPTURED = "a module that computes whole paths copies its cache in each pass, which a CUDA graph cannot do"
"""Reason why passes by whole paths are not captured as CUDA graphs."""


def takes_paths(text: Any) -> bool:
    """Whether modules with the text configuration `text` are known to compute a draft tree as whole paths; the probe
    finds further such modules.
    """
    return getattr(text, "model_type", None) in FAMILIES or bool(getattr(text, "alibi", False))
