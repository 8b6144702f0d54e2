"""Cache sizes computed from a configuration equal the allocated sizes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decoder.forward.hf import traits_of
from decoder.forward.hf_module import HfModule
from decoder.forward.layer_kinds import cache_bytes
from decoder.forward.whole_paths import PathCache
from tests.decoder.any_family import PROMPT
from tests.decoder.survey.results import read
from tests.decoder.survey.tiny_models import FACTORS, tiny_config, tiny_module

ITEM_BYTES = 4
SEVERAL = (
    "llama", "falcon", "gpt_bigcode", "gemma4_text", "gemma3n_text", "deepseek_v3", "hy_v4", "dots3_note",
    "mimo_v2_flash", "dory", "inkling_text", "inkling2_loop_text", "qwen4_exp_text", "zamba2", "bloom",
    "minimax_m3_vl_text",
)  # fmt: skip
"""Families with their own configuration names for heads, widths, or the number of cached layers."""
COMPRESSED = {"deepseek_v4"}
"""Families that cache less than one row per token; the computed size is larger than the allocated one."""
STATES_ALONE = {"rwkv", "xlstm"}
"""Families whose own caches have no rows; their states do not grow with the text."""


@torch.inference_mode()
def computed_and_allocated(family: str) -> tuple[int, int]:
    """Computed and allocated bytes of the prompt's rows."""
    config = tiny_config(family)
    module = tiny_module(family, config, FACTORS[0])
    form = HfModule(traits_of(module), module=module).forward_form()
    cache = form.new_cache(len(PROMPT))
    form.read(cache, PROMPT)
    computed, _ = cache_bytes(config.get_text_config(), len(PROMPT), ITEM_BYTES)
    if isinstance(cache, PathCache):
        return computed, cache.nbytes
    return computed, sum(rows.nbytes for rows in ([rows for rows, _ in cache.parts.values()] or [cache.store]))


@pytest.mark.parametrize("family", SEVERAL)
def test_a_text_takes_the_memory_that_its_configuration_says(family: str) -> None:
    computed, allocated = computed_and_allocated(family)
    assert computed == allocated > 0


@pytest.mark.soak
def test_so_it_is_for_every_family_that_the_survey_decodes() -> None:
    families = {trial.family for trial in read().trials if trial.route} - COMPRESSED - STATES_ALONE
    wrong = {family: found for family in sorted(families) if len(set(found := computed_and_allocated(family))) > 1}
    assert len(families) > 100
    assert not wrong


@pytest.mark.parametrize("family", sorted(STATES_ALONE))
def test_states_do_not_grow_with_the_text(family: str) -> None:
    assert cache_bytes(tiny_config(family).get_text_config(), 1000, ITEM_BYTES) == (0, 0)


class Config(SimpleNamespace):
    """A configuration of a family that may have a window in all layers."""

    def __init__(self, sliding_window: int | None = None, **fields: Any) -> None:
        super().__init__(sliding_window=sliding_window, **fields)


def config(**fields: Any) -> Config:
    return Config(**{"max_position_embeddings": 64, "num_hidden_layers": 2, "hidden_size": 16} | fields)


def test_the_memory_of_all_rows_is_told_beside_that_of_ring_buffers() -> None:
    """A row has a key and a value of two heads with 4 numbers of 2 bytes each."""
    shape = config(
        sliding_window=8, layer_types=["sliding_attention", "full_attention"], num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    row = 2 * 2 * 4 * 2
    assert cache_bytes(shape, 40, 2) == (2 * 40 * row, (40 + 8) * row)


def test_layers_that_share_keys_take_no_memory() -> None:
    shape = config(num_attention_heads=2, head_dim=4, num_kv_shared_layers=1)
    assert cache_bytes(shape, 10, 1) == (2 * 2 * 4 * 10,) * 2
