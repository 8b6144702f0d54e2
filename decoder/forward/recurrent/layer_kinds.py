"""Which models keep states: layer types whose memory of a text is one tensor, not one row of a KV cache per token.

Pure functions of a configuration.
"""

from typing import Any

from decoder.forward.windows import ATTENTION_OF, FULL, LIMITS, layer_types

STATES = frozenset({"linear_attention", "conv", *ATTENTION_OF})
"""Layer types with a state; hybrid layers also attend to cached keys."""
NO_MEMORY = frozenset({"moe", "mlp"})
"""Layer types whose output at a row depends on the input at this row only."""
MASKED = frozenset({FULL, "attention", "indexed_attention", *LIMITS})
"""Types of attention that take a mask; layers without attention must get no mask."""

HOST_ROUNDS = "layers with states need the host between passes, and a CUDA graph runs without the host"
"""Reason why passes of models with states are not captured as CUDA graphs."""


def keeps_states(config: Any) -> bool:
    """Whether some layer of a configuration keeps a state, for example that of a recurrence."""
    return bool(STATES.intersection(layer_types(config.get_text_config())))
