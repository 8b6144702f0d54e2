"""Passes of fixed shape have the logits of Hugging Face modules, in every dtype and with attention windows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.forward.families.model import Heads, RotationMatrices, rotate_heads
from decoder.forward.families.registry import FIXED, NEOX
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import StaticForward
from decoder.session.cuda_graph.draft import DraftPart
from decoder.session.cuda_graph.slots import BEYOND, causal_bias, read_logits
from decoder.session.cuda_graph.verify import ancestors, tree_bias
from tests.decoder.family_models import MODELS, made, static_of
from tests.decoder.random_trees import errors, path

IN_BFLOAT16 = ("neox", "neox, one after the other", "neox, odd heads", "llama", "qwen2", "mistral, windows of 8")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_random_trees_are_the_module_s_in_float64(name: str) -> None:
    form, module = static_of(made(name, torch.float64)), made(name, torch.float64)
    assert max(errors(form, module, seed, module)[0] for seed in range(3)) < 1e-11


@pytest.mark.parametrize("name", IN_BFLOAT16)
def test_bfloat16_is_about_as_exact_as_in_the_module(name: str) -> None:
    form, module = static_of(made(name, torch.bfloat16)), made(name, torch.bfloat16)
    judge = made(name, torch.bfloat16).double()
    mine, its = zip(*(errors(form, module, seed, judge) for seed in range(4)), strict=True)
    assert sum(mine) < 1.5 * sum(its)


@pytest.mark.parametrize("rotated", [2, 6, 8])
def test_a_matrix_turns_a_head_and_keeps_it_too(rotated: int) -> None:
    rows = torch.randn(5, 3, 8, dtype=torch.float64)
    angles = torch.randn(5, rotated // 2, dtype=torch.float64)
    rotation = torch.polar(torch.ones_like(angles), angles)[:, None, None]
    matrices = RotationMatrices(Heads(1, 1, 8, rotated), rows.dtype, rows.device).matrices(rotation)
    by_formula = rotate_heads(rows.transpose(0, 1), rotation, rotated).transpose(0, 1)
    torch.testing.assert_close(torch.bmm(rows, matrices), torch.cat((by_formula, rows), 2), rtol=0, atol=1e-14)


@torch.no_grad()
def test_rows_at_one_position_are_turned_alike_in_bfloat16() -> None:
    form = static_of(made("llama", torch.bfloat16))
    cache = form.new_cache(16)
    form.read(cache, [1, 2, 3])
    first, second = form.forward(cache, [4, 4], [3, 3], np.eye(2, dtype=np.bool_))
    assert bool(first.any())
    assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NEOX.activations)
def test_an_activation_maps_the_constant_that_carries_a_bias_to_itself(kind: str, dtype: torch.dtype) -> None:
    constant: Tensor = torch.tensor([[FIXED, 0.0]], dtype=dtype)
    activation = NEOX.activations[kind]
    assert torch.equal(activation.formula(constant), constant)
    assert torch.equal(activation.in_place(constant.clone()), constant)


WINDOWED = ("mistral, windows of 8", "qwen2, windows in half of its layers")
TEXT = [(7 * place * place + 3) % 96 for place in range(40)]
SLOTS = 256
PARENTS = [0, 0, 0, 1, 1, 2, 5, 3]
"""Parent of each tree node, of the root the root itself; the tree is shallower than the windows."""
FORMS: dict[str, Callable[[Any], StaticForward]] = {
    "native": static_of,
    "native, for a compiler": lambda module: static_of(module).for_a_compiler(),
    "module": ModuleStatic,
}


@torch.no_grad()
def plain(module: Any, tokens: list[int]) -> Tensor:
    """Logits after each token of a text."""
    logits: Tensor = module(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WINDOWED)
@torch.no_grad()
def test_text_and_tree_beyond_the_windows_have_the_logits_of_the_module(name: str, form: str) -> None:
    module = made(name, torch.float64)
    forward = FORMS[form](module)
    side = DraftPart(forward, forward.new_store(SLOTS + BEYOND), 96, 192)
    torch.testing.assert_close(read_logits(side, TEXT[:30]), plain(module, TEXT[:30]), rtol=0, atol=1e-10)
    places = torch.arange(30, len(TEXT))
    rest = side.logits(torch.tensor(TEXT[30:]), places, places, causal_bias(side.store, len(places), 30))
    torch.testing.assert_close(rest, plain(module, TEXT)[30:], rtol=0, atol=1e-10)
    tokens, nodes = [(11 * node + 5) % 96 for node in range(len(PARENTS))], range(len(PARENTS))
    paths = [path([-1, *PARENTS[1:]], node) for node in nodes]
    slots = torch.arange(len(TEXT), len(TEXT) + len(nodes))
    places = torch.tensor([len(TEXT) + len(above) - 1 for above in paths])
    above = ancestors(torch.tensor(PARENTS), 4, torch.eye(len(nodes)))
    found = side.logits(torch.tensor(tokens), places, slots, tree_bias(side, torch.arange(SLOTS), slots, above))
    for node in nodes:
        right = plain(module, TEXT + [tokens[each] for each in paths[node]])[-1]
        torch.testing.assert_close(found[node], right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", WINDOWED)
def test_rounds_of_the_host_take_trees_that_are_deeper_than_windows(name: str) -> None:
    module = made(name, torch.float64)
    for seed in range(5):
        assert errors(static_of(module), module, seed, module)[0] < 1e-10


@pytest.mark.parametrize("name", ["mistral", "qwen2"])
@torch.no_grad()
def test_layers_without_windows_have_rotations_and_nothing_else_in_their_tables(name: str) -> None:
    form = static_of(made(name))
    store = form.new_store(16)
    assert form.rotation(store, torch.arange(3)).shape[3] == form.rotary.width // 2
