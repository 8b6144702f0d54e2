"""Families with windows, caches of any shape and experts: trees are plain text, and every method is `generate`."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder import RunConfig
from decoder.errors import PairError
from decoder.forward.hf import ModuleForward
from decoder.forward.static.hf import ModuleStatic
from decoder.models.compatibility import check_architecture, probe
from tests import tiny
from tests.decoder.any_family import (
    CONTEXT,
    FAMILIES,
    PROMPT,
    SHAPED,
    WINDOW,
    WINDOWED,
    built,
    config_of,
    decoded,
    engine_of,
    greedy,
)

PARENTS = (-1, 0, 0, 1, 1, 2, 5, 3)
"""A tree's nodes by the parents above them: siblings, and branches of unequal length."""
COUNT = 36
METHODS = ("ar", "linear", "dynatree", "auto")
"""Without a draft model, `auto` copies from earlier in the text."""


@functools.cache
def target(family: str) -> Any:
    return built(config_of(family))


@functools.cache
def draft(family: str) -> Any:
    return tiny.kin(target(family), seed=2, noise=0.005)


def path_of(node: int) -> list[int]:
    return [] if node < 0 else [*path_of(PARENTS[node]), node]


@torch.inference_mode()
def plain(module: Any, text: list[int]) -> Tensor:
    """Logits after each token of a text, without a cache."""
    logits: Tensor = module(input_ids=torch.tensor([text]), use_cache=False).logits[0]
    return logits


@torch.inference_mode()
def largest_difference(module: Any) -> float:
    """Largest difference of any node's logits from those of its path as plain text, over the largest logit."""
    form, text, worst = ModuleForward(module), list(PROMPT), 0.0
    cache = form.new_cache(CONTEXT)
    form.read(cache, text[: WINDOW + 2])
    form.read(cache, text[WINDOW + 2 :])
    paths = [path_of(node) for node in range(len(PARENTS))]
    visible = np.array([[other in path for other in range(len(PARENTS))] for path in paths])
    for kept in ([0, 2, 5], [0, 1, 3, 7], [0, 2, 5, 6]):
        tokens = [(7 * node + len(text)) % 90 for node in range(len(PARENTS))]
        logits = form.forward(cache, tokens, [len(text) + len(path) - 1 for path in paths], visible)
        for path in (path for node, path in enumerate(paths) if node not in PARENTS):
            right = plain(module, text + [tokens[node] for node in path])[len(text) :]
            worst = max(worst, float((logits[path] - right).abs().max() / right.abs().max()))
        cache.keep([cache.length + node for node in kept])
        text += [tokens[node] for node in kept]
    return worst


@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_of_trees_after_a_text_longer_than_windows_have_the_logits_of_plain_text(family: str) -> None:
    assert largest_difference(target(family)) < 1e-4


@pytest.mark.parametrize("family", ["gpt_oss", "gemma3n_text", "llama4_text", "deepseek_v32", "gemma4_text"])
def test_a_family_passes_the_checks_of_loading(family: str) -> None:
    check_architecture(family, target(family).config.get_text_config())
    probe(engine_of(target(family)).pair.target)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_writes_the_text_of_greedy_search(family: str) -> None:
    drafted, looked_up = engine_of(target(family), draft(family)), engine_of(target(family))
    right = greedy(target(family), PROMPT, COUNT)
    texts = {name: decoded(drafted, PROMPT, RunConfig((name,), COUNT))[0] for name in METHODS}
    texts["lookup"], _ = decoded(looked_up, PROMPT, RunConfig(("auto",), COUNT))
    assert texts == dict.fromkeys(texts, right)


@pytest.mark.parametrize("family", ["gpt_oss", "deepseek_v3", "llama4_text"])
def test_every_method_writes_the_same_sampled_text(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30, 3, temperature=0.7))[0] for name in METHODS]
    assert texts == [texts[0]] * len(METHODS)


@pytest.mark.parametrize("family", ["gemma3_text", "deepseek_v2"])
def test_a_family_drafts_for_another(family: str) -> None:
    """A draft with windows, or with keys and values of several shapes, is accepted as often as it guesses right."""
    other = target("mistral")
    right = greedy(other, PROMPT, COUNT)
    engine = engine_of(other, draft(family))
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))[0] == right


@pytest.mark.parametrize("family", ["mistral", "gemma4_text"])
def test_drafts_of_a_kin_are_accepted(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))[1] < COUNT / 2


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


@pytest.mark.parametrize("family", ["mistral", "minicpm3"])
def test_exact_passes_take_windows_and_shapes(family: str) -> None:
    engine = engine_of(target(family), draft(family)).batch_invariant()
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30))[0] for name in ("ar", "dynatree")]
    assert texts == [greedy(target(family), PROMPT, 30)] * 2


@pytest.mark.parametrize(("family", "what"), [("gpt_oss", "s_aux"), ("gemma2", "softcap")])
def test_exact_passes_refuse_sinks_and_caps(family: str, what: str) -> None:
    with pytest.raises(PairError, match=f"asks for {what}, which exact attention does not support; leave out --exact"):
        engine_of(target(family)).batch_invariant()


@pytest.mark.parametrize("family", ["mistral", "deepseek_v3"])
def test_streaming_refuses_windows_and_shapes(family: str) -> None:
    with pytest.raises(
        PairError, match="streaming needs keys and values of one shape in all layers, and layers without"
    ):
        engine_of(target(family), draft(family)).pair.target.streaming(4, 60)


@pytest.mark.parametrize(("family", "why"), [("mistral", "has one mask"), ("deepseek_v3", "one tensor")])
def test_graphs_refuse_windows_and_shapes(family: str, why: str) -> None:
    with pytest.raises(PairError, match=why):
        ModuleStatic(target(family))
