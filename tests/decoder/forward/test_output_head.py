"""Logits of half-precision models on an accelerator are not rounded to half precision."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from decoder.forward.language_model import LanguageModel
from decoder.forward.linear import has_wide_product, product, widen
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import static_forward
from tests.decoder.makers import TinyModels
from tests.fake_cuda.driver import fake_cuda

HALF = [torch.bfloat16, torch.float16]
TOKENS = [5, 9, 2, 7]


def operands(dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    rows, weight, bias = (torch.randn(shape, generator=random) for shape in ((3, 64), (40, 64), (40,)))
    return rows.to(device, dtype), weight.to(device, dtype), bias.to(device, dtype)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", HALF)
def test_a_product_on_an_accelerator_has_the_sum_in_float32(dtype: torch.dtype, *, biased: bool) -> None:
    with fake_cuda():
        rows, weight, bias = operands(dtype, "cuda")
        found = product(rows, weight, bias if biased else None).cpu()
    rows, weight, bias = operands(dtype, "cpu")
    assert found.dtype is torch.float32
    assert torch.allclose(found, functional.linear(rows.float(), weight.float(), bias.float() if biased else None))
    assert not found.to(dtype).float().equal(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_product_of_wider_operands_is_torch_s_own(dtype: torch.dtype) -> None:
    with fake_cuda():
        rows, weight, bias = operands(dtype, "cuda")
        found = product(rows, weight, bias).cpu()
    assert found.equal(functional.linear(*operands(dtype, "cpu")))


def test_where_torch_has_no_such_product_logits_are_rounded_as_before() -> None:
    rows, weight, bias = operands(torch.bfloat16, "cpu")
    assert not has_wide_product(weight.device, weight.dtype)
    assert product(rows, weight, bias).equal(functional.linear(rows, weight, bias))


@pytest.mark.parametrize("family", ["neox", "llama"])
@pytest.mark.parametrize("by_module", [False, True])
def test_the_static_forms_of_a_model_in_half_precision_give_unrounded_logits(
    tiny_models: TinyModels, family: str, *, by_module: bool
) -> None:
    held = copy.deepcopy(tiny_models.loaded(tiny_models.pair(family), "bfloat16").pair.target.hf.module)
    with fake_cuda(), torch.no_grad():
        model = LanguageModel.of_module(held.to("cuda"), "target")
        form: Any = ModuleStatic(model.hf.module) if by_module else static_forward(model)
        logits = form.read(form.new_cache(16), TOKENS).cpu()
    assert logits.dtype is torch.float32
    assert not logits.bfloat16().float().equal(logits)


def test_heads_that_another_library_changed_or_quantised_stay_as_they_are() -> None:
    class Quantised(nn.Linear):
        pass

    class Module(nn.Module):
        def __init__(self, head: nn.Linear) -> None:
            super().__init__()
            self.head = head

        def get_output_embeddings(self) -> nn.Linear:
            return self.head

    with fake_cuda():
        changed = nn.Linear(8, 8, dtype=torch.float16).to("cuda")
        before = vars(changed)["forward"] = nn.Identity()
        quantised = Quantised(8, 8, dtype=torch.float16).to("cuda")
        for head in (changed, quantised):
            widen(Module(head))
    assert changed.forward is before
    assert "forward" not in vars(quantised)


def test_a_copy_of_a_widened_module_computes_with_weights_of_its_own(tiny_models: TinyModels) -> None:
    module = copy.deepcopy(tiny_models.loaded(tiny_models.pair("neox"), "bfloat16").pair.target.hf.module)
    with fake_cuda(), torch.no_grad():
        first = LanguageModel.of_module(module.to("cuda"), "target").hf.module
        twin = copy.deepcopy(first)
        twin.get_output_embeddings().weight.zero_()
        ids = torch.tensor([TOKENS], device="cuda")
        assert not twin(ids).logits.cpu().any()
        assert first(ids).logits.cpu().any()
