"""Tiny random models of families whose layers keep a state: recurrences, convolutions, linear attention."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig

from tests.decoder.any_family import EXPERTS, LATENT, SHAPE, built

MIXED: dict[str, Any] = {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2}
CONVOLUTIONS: dict[str, Any] = {"layer_types": ["conv", "full_attention", "conv"]}
DELTA: dict[str, Any] = {
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
}  # fmt: skip
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 4,
}  # fmt: skip

HYBRID: dict[str, Any] = {
    "layers_block_type": ["linear_attention", "hybrid"], "num_hidden_layers": 2, "use_mamba_kernels": False,
    "attention_hidden_size": 64, "attention_head_dim": 16, "num_key_value_heads": 4, "mamba_d_state": 8,
}  # fmt: skip

USUAL: Mapping[str, dict[str, Any]] = {
    "qwen3_next": EXPERTS | MIXED | DELTA | {"shared_expert_intermediate_size": 16, "mlp_only_layers": []},
    "qwen3_5_text": MIXED | DELTA,
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64, "num_hidden_layers": 2},
    "lfm2": CONVOLUTIONS | {"block_multiple_of": 8},
    "mamba2": {"num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "n_groups": 2, "state_size": 8, "chunk_size": 4},
    "granitemoehybrid": MAMBA | MIXED | EXPERTS | {"shared_intermediate_size": 16},
}  # fmt: skip
"""Families of the most used checkpoints; the tests decode them with every method."""
FURTHER: Mapping[str, dict[str, Any]] = {
    "qwen3_5_moe_text": EXPERTS | MIXED | DELTA | {"shared_expert_intermediate_size": 16},
    "lfm2_moe": EXPERTS | CONVOLUTIONS,
    "lfm3": {"layer_types": ["conv", "sliding_attention", "full_attention"], "sliding_window": 8},
    "bamba": MAMBA | {"attn_layer_indices": [1], "num_hidden_layers": 2},
    "nemotron_h": EXPERTS | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"], "mamba_num_heads": 4,
        "mamba_head_dim": 16, "n_groups": 1, "ssm_state_size": 8, "chunk_size": 4, "use_mamba_kernels": False,
        "moe_shared_expert_intermediate_size": 16,
    },
    "kimi_linear": EXPERTS | LATENT | MIXED | {"linear_head_dim": 8, "linear_num_heads": 4},
    "olmo_hybrid": MIXED | DELTA | {"linear_num_key_heads": 4},
    "bailing_hybrid": EXPERTS | LATENT | MIXED | {"linear_head_dim": 8, "linear_num_heads": 4},
    "zamba2": HYBRID | {"mamba_headdim": 16, "n_mamba_heads": 4, "adapter_rank": 4, "chunk_size": 4,
                        "mamba_ngroups": 1},
    "minimax": EXPERTS | MIXED | {"block_size": 4, "sliding_window": None},
    "zaya": EXPERTS | {"num_hidden_layers": 2, "num_experts_per_tok": 1, "router_hidden_size": 16},
    "mamba": {"num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4},
    "falcon_mamba": {"num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4},
    "jamba": EXPERTS | {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
                        "use_mamba_kernels": False, "mamba_d_state": 8, "mamba_dt_rank": 4},
    "zamba": HYBRID | {"n_mamba_heads": 2, "mamba_dt_rank": 4},
}  # fmt: skip
"""Families tested with a few trees and one method."""
STEPWISE = ("mamba", "falcon_mamba", "jamba", "zamba")
"""Families whose scan of several tokens ignores its initial state."""
SENSITIVE = ("nemotron_h", "zamba2")
"""Families with smaller weights, since large ones amplify the rounding differences between scans and steps."""
DULL: Mapping[str, tuple[float, float]] = {"zaya": (2.0, 8.0)}
"""Families that repeat one token unless their weights and their embeddings are scaled by these factors."""
FAMILIES = {**USUAL, **FURTHER}


def config_of(family: str, **changes: Any) -> Any:
    return AutoConfig.for_model(family, **SHAPE | FAMILIES[family] | changes)


def target_of(family: str, **changes: Any) -> Any:
    module = built(config_of(family, **changes))
    inner, embedding = DULL.get(family, (1.0, 1.0))
    first, last = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1 and family in SENSITIVE:
                weight.mul_(0.6)
            elif weight.dim() > 1 and weight is not last:
                weight.mul_(embedding if weight is first else inner)
    return module
