"""Tiny random models of families whose modules support only plain paths, not tree masks."""

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig

from tests.decoder.any_family import SHAPE, built
from tests.decoder.survey.tiny_models import tiny_config

USUAL = ("bloom", "mpt", "gpt_neo")
"""Families with commonly used checkpoints."""
STATEFUL = ("deepseek_v4", "rwkv", "xlstm")
"""Families whose caches cannot be shortened."""
FURTHER = ("roformer", "minimax_m3_vl_text", *STATEFUL)
BY_TRIAL: Mapping[str, dict[str, Any]] = {
    "falcon": {"alibi": True, "new_decoder_architecture": False, "multi_query": True},
    "big_bird": {"is_decoder": True, "attention_type": "original_full"},
}
"""Families that only a trial of the module identifies; their model type does not."""
FAMILIES = (*USUAL, *FURTHER, *BY_TRIAL)


def target_of(family: str) -> Any:
    if family in BY_TRIAL:
        settings = {**SHAPE, **BY_TRIAL[family]}
        return built(
            AutoConfig.for_model(family, **{name: value for name, value in settings.items() if name != "head_dim"})
        )
    return built(tiny_config(family))
