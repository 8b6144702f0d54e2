"""Tiny random models of families whose layers keep a state: recurrences, convolutions, linear attention."""

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig

from tests.decoder.any_family import EXPERTS, LATENT, SHAPE, built

MIXED: dict[str, Any] = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
CONVOLUTIONS: dict[str, Any] = {"layer_types": ["conv", "full_attention", "conv"]}
DELTA: dict[str, Any] = {
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
}  # fmt: skip
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 4,
}  # fmt: skip

FAMILIES: Mapping[str, dict[str, Any]] = {
    "qwen3_next": EXPERTS | MIXED | DELTA | {"shared_expert_intermediate_size": 16, "mlp_only_layers": []},
    "qwen3_5_text": MIXED | DELTA,
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64},
    "lfm2": CONVOLUTIONS | {"block_multiple_of": 8},
    "mamba2": {"num_heads": 4, "head_dim": 16, "n_groups": 2, "state_size": 8, "chunk_size": 4},
    "granitemoehybrid": MAMBA | MIXED | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 16},
}  # fmt: skip


def config_of(family: str, **changes: Any) -> Any:
    """A configuration of the family."""
    return AutoConfig.for_model(family, **SHAPE | FAMILIES[family] | changes)


def target_of(family: str, **changes: Any) -> Any:
    """A tiny module of the family."""
    return built(config_of(family, **changes))
