"""Which models keep states, and which compute draft trees as whole paths. A state is a layer's memory of a text in one
tensor, in place of one row of a KV cache per token.
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


def keeps_states(config: Any) -> bool:
    return bool(STATES.intersection(layer_types(config.get_text_config())))


FAMILIES = frozenset({"bloom", "deepseek_v4", "gpt_neo", "minimax_m3_vl_text", "mpt", "roformer", "rwkv", "xlstm"})
"""Model types whose positions follow from row numbers, or whose caches hold more than rows and states."""
UNCAPTURED = "a module that computes whole paths copies its cache in each pass, which a CUDA graph cannot do"


def takes_paths(text: Any) -> bool:
    """Whether modules are known to compute a draft tree as whole paths; the probe finds further such modules."""
    return getattr(text, "model_type", None) in FAMILIES or bool(getattr(text, "alibi", False))
