"""Families with windows, caches of several shapes, or experts: what the forms for rows do, and what refuses them."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig
from decoder.errors import PairError
from decoder.forward.hf import ModuleForward
from decoder.forward.static.hf import ModuleStatic
from decoder.system.device import GROUPED, fuses_grouped_heads
from tests import tiny
from tests.decoder.any_family import (
    CONTEXT,
    PROMPT,
    SHAPED,
    WINDOWED,
    built,
    config_of,
    counted,
    decoded,
    engine_of,
    greedy,
    whole_and_layers,
)
from tests.decoder.fixed_tree import PATHS, VISIBLE, plain

COUNT = 24


@functools.cache
def target(family: str) -> Any:
    return built(config_of(family))


@functools.cache
def draft(family: str) -> Any:
    return tiny.kin(target(family), seed=2, noise=0.005)


@pytest.mark.parametrize("family", ["mistral", "gemma4_text"])
def test_drafts_of_a_kin_are_accepted(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))[1] < COUNT / 2


@pytest.mark.parametrize("method", ["dynatree", "auto"])
@pytest.mark.parametrize("family", ["mistral", "deepseek_v3"])
def test_a_round_is_one_pass_of_every_layer(family: str, method: str) -> None:
    """With windows and with latent attention; the prompt takes one more pass."""
    with counted(whole_and_layers(target(family))) as calls:
        _, rounds = decoded(engine_of(target(family), draft(family)), PROMPT, RunConfig((method,), COUNT))
    assert set(calls.values()) == {1 + rounds}
    assert rounds < COUNT


@pytest.mark.parametrize("family", WINDOWED)
def test_the_windows_matter(family: str) -> None:
    wide = built(config_of(family, sliding_window=CONTEXT, attention_chunk_size=CONTEXT))
    assert not torch.allclose(plain(wide, PROMPT), plain(target(family), PROMPT), atol=0.01)


@pytest.mark.parametrize("family", SHAPED)
def test_keys_and_values_of_several_shapes_are_cached_by_part(family: str) -> None:
    form = ModuleForward(target(family))
    cache = form.new_cache(CONTEXT)
    form.read(cache, PROMPT)
    assert len({tuple(rows.shape) for rows, _ in cache.parts.values()}) > 1


@pytest.mark.parametrize("family", ["mistral", "qwen3_moe"])
def test_heads_that_share_keys_in_torch_give_the_same_bits(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuses_grouped_heads()
    monkeypatch.delenv(GROUPED, raising=False)
    copied = after_a_tree(target(family))
    monkeypatch.setenv(GROUPED, "1")
    assert after_a_tree(target(family)).equal(copied)


@torch.inference_mode()
def after_a_tree(module: Any) -> Tensor:
    """Logits of a tree after the prompt."""
    form = ModuleForward(module)
    cache = form.new_cache(CONTEXT)
    form.read(cache, PROMPT)
    return form.forward(cache, range(5, 13), [len(PROMPT) + len(path) - 1 for path in PATHS], VISIBLE)


@pytest.mark.parametrize("family", ["mistral", "qwen2", "minicpm3"])
def test_exact_passes_take_windows_and_shapes(family: str) -> None:
    engine = engine_of(target(family), draft(family)).batch_invariant()
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30))[0] for name in ("ar", "dynatree")]
    assert texts == [greedy(target(family), PROMPT, 30)] * 2


@pytest.mark.parametrize(("family", "what"), [("gpt_oss", "s_aux"), ("gemma2", "softcap")])
def test_exact_passes_refuse_sinks_and_caps(family: str, what: str) -> None:
    with pytest.raises(PairError, match=f"asks for {what}, which exact attention does not support; leave out --exact"):
        engine_of(target(family)).batch_invariant()


@pytest.mark.parametrize("family", ["mistral", "qwen2", "starcoder2", "deepseek_v3"])
def test_streaming_refuses_windows_and_shapes(family: str) -> None:
    with pytest.raises(PairError, match="streaming does not support layers with attention windows, or with keys and"):
        engine_of(target(family), draft(family)).pair.target.streaming(4, 60)


def test_graphs_refuse_keys_and_values_of_several_shapes() -> None:
    with pytest.raises(PairError, match="one tensor"):
        ModuleStatic(target("deepseek_v3"))
