"""What is known of a model before it runs. Imports no transformers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from decoder.forward.families.weights import Source

NO_LIMIT = 1 << 20
"""Tokens that a model can hold whose configuration names no number."""
LENGTHS = ("max_position_embeddings", "max_target_positions", "max_seq_len")
"""What configurations call that number; the first that is there counts."""


def longest_text(config: Any) -> int:
    """Tokens that a model can hold at the same rotary positions.

    Where longrope scales a text that has outgrown the original length, it turns all positions otherwise, those of keys
    that are already kept too; a text would then depend on how many rows were computed at a time.
    """
    named = next((length for name in LENGTHS if (length := getattr(config, name, None))), NO_LIMIT)
    original = getattr(config, "original_max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) or {}
    by_layers = [rotary, *(inner for inner in rotary.values() if isinstance(inner, dict))]
    switching = [each for each in by_layers if each.get("rope_type") == "longrope"]
    return min([named, *(each.get("original_max_position_embeddings") or original or named for each in switching)])


@dataclass(frozen=True)
class Traits:
    """What is known of a model before it runs."""

    layers: int
    width: int
    """Of the logits; may exceed the vocabulary."""
    context: int
    """Tokens that it can hold."""
    device: torch.device
    dtype: torch.dtype
    eos: Any
    """The tokens that end a text, as the checkpoint names them."""
    skeleton: Callable[[], Any]
    """Makes a Hugging Face module without weights that has the model's parts and shapes."""
    source: Source | None
    """Its weights, where it is of a family that runs without the module."""
