"""Longest text of a model, from its configuration; knows neither attention windows nor modules."""

from typing import Any

NO_LIMIT = 1 << 20
"""Context length, in tokens, that is assumed if a model's configuration states none."""
LENGTHS = ("max_position_embeddings", "max_target_positions", "max_seq_len")
"""Configuration fields that may contain the context length; the first field present is used."""


def longest_text(config: Any) -> int:
    """Length of the longest text, in tokens, for which rotary frequencies stay the same.

    For texts beyond the original context length, longrope uses other frequencies at all positions, but cached keys keep
    the old frequencies; the generated text would then depend on the number of rows in each pass.
    """
    named = next((length for name in LENGTHS if (length := getattr(config, name, None))), NO_LIMIT)
    original = getattr(config, "original_max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) or {}
    by_layers = [rotary, *(inner for inner in rotary.values() if isinstance(inner, dict))]
    switching = [each for each in by_layers if each.get("rope_type") == "longrope"]
    return min([named, *(each.get("original_max_position_embeddings") or original or named for each in switching)])
