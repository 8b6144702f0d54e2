"""Layers of fixed-shape passes have the logits of Hugging Face modules, in every dtype."""

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.forward.families.model import Heads, Turning, turned
from decoder.forward.families.registry import FIXED, NEOX
from tests.decoder.family_models import MODELS, made, static_of
from tests.decoder.random_trees import errors

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
    matrices = Turning(Heads(1, 1, 8, rotated), rows.dtype, rows.device).matrices(rotation)
    by_formula = turned(rows.transpose(0, 1), rotation, rotated).transpose(0, 1)
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
