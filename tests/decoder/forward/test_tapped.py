"""Tapped passes record the inputs of some layers row by row, and compute the same bits as plain passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from decoder.errors import PairError
from decoder.forward.language_model import LanguageModel
from decoder.forward.taps import LayerStates
from tests import tiny
from tests.decoder.random_trees import Tree
from tests.heads import target

LAYERS = (0, 2, 7)
TEXT, DRAFTED = [5, 99, 7, 250, 12], [41, 60, 41, 7]
PARENTS = [-1, 0, 0, 1]


@dataclass(frozen=True)
class Tap:
    """A tapped model with its recorded states."""

    model: LanguageModel
    states: LayerStates

    @classmethod
    def of(cls, model: LanguageModel) -> "Tap":
        states = LayerStates(LAYERS)
        return cls(model.tapped(states), states)


def made(family: str, *, exact: bool) -> LanguageModel:
    model = LanguageModel.of_module(target(family), family)
    return model.exact() if exact else model


def entered(module: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Inputs of the layers when the module reads plain text, concatenated over the layers."""
    body, found = module.base_model, list[torch.Tensor]()
    parts = body.h if hasattr(body, "h") else body.layers
    hooks = [parts[layer].register_forward_pre_hook(lambda _part, given: found.append(given[0][0])) for layer in LAYERS]
    with torch.inference_mode():
        module(torch.tensor([tokens]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.cat(found, -1)


TREE = Tree(TEXT, DRAFTED, PARENTS)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("family", tiny.FAMILIES)
@torch.inference_mode()
def test_states_of_text_and_tree_are_those_of_a_plain_module(family: str, *, exact: bool) -> None:
    tap = Tap.of(made(family, exact=exact))
    module = target(family)
    cache = tap.model.new_cache(32)
    tap.model.read(cache, TEXT, chunk=2)
    assert tap.states.take(range(len(TEXT))).numpy() == pytest.approx(entered(module, TEXT).numpy(), abs=1e-3)
    tap.model.forward(cache, DRAFTED, TREE.positions, TREE.visible)
    path = [0, 1, 3]
    expected = entered(module, [*TEXT, *(DRAFTED[node] for node in path)])[len(TEXT) :]
    assert tap.states.take(path).numpy() == pytest.approx(expected.numpy(), abs=1e-3)


@pytest.mark.parametrize("family", tiny.FAMILIES)
@torch.inference_mode()
def test_a_layer_that_overwrites_its_rows_leaves_those_that_it_was_given(family: str) -> None:
    """Layers in half precision overwrite their rows in place, because their residual is in float32."""
    tap = Tap.of(LanguageModel.of_module(target(family).bfloat16(), family))
    tap.model.read(tap.model.new_cache(32), TEXT)
    expected = entered(target(family), TEXT)
    worst = (tap.states.take(range(len(TEXT))) - expected).abs().max()
    assert worst < 0.1 * expected.abs().max()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("family", tiny.FAMILIES)
@torch.inference_mode()
def test_tapped_passes_compute_the_same_bits(family: str, *, exact: bool) -> None:
    model = made(family, exact=exact)
    found = []
    for each in (model, Tap.of(model).model):
        cache = each.new_cache(32)
        first = each.read(cache, TEXT)
        found.append((first, each.forward(cache, DRAFTED, TREE.positions, TREE.visible), cache.store.clone()))
    assert all(torch.equal(plain, tapped) for plain, tapped in zip(*found, strict=True))


@torch.inference_mode()
def test_rows_that_were_not_taken_are_overwritten_as_those_of_the_cache_are() -> None:
    tap = Tap.of(made("llama", exact=False))
    cache = tap.model.new_cache(32)
    tap.model.read(cache, TEXT)
    tap.states.take(range(len(TEXT)))
    for tokens in ([1, 2, 3], [41]):
        positions = range(len(TEXT), len(TEXT) + len(tokens))
        tap.model.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))
        cache.keep([])
    expected = entered(target("llama"), [*TEXT, 41])[-1:]
    assert tap.states.take([0]).numpy() == pytest.approx(expected.numpy(), abs=1e-3)


def test_a_form_that_shows_nothing_is_refused_in_one_line() -> None:
    streaming = made("llama", exact=False).streaming(2, 40)
    with pytest.raises(PairError, match="drafting head") as refusal:
        streaming.tapped(LayerStates(LAYERS))
    assert "\n" not in str(refusal.value)


def test_the_embedding_is_the_one_that_tokens_enter_by() -> None:
    for family in tiny.FAMILIES:
        module = target(family)
        own = module.get_input_embeddings().weight
        assert torch.equal(LanguageModel.of_module(module, family).embedding, own)
