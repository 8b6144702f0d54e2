"""Linear layers equal torch's in every dtype, products for logits are not rounded to half precision, and a row of
logits leaves a choice or is refused.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from decoder.errors import LogitsError
from decoder.forward import linear, token_choice
from decoder.forward.language_model import LanguageModel
from decoder.forward.linear import Linear, has_wide_product, product, widen
from decoder.forward.static_forward import static_forward
from decoder.forward.static_hf import ModuleStatic
from decoder.forward.token_choice import choices, require_choices
from decoder.system import device
from decoder.system.device import choose_dtype
from tests.decoder.makers import TinyModels
from tests.decoder.property_settings import examples
from tests.fake_cuda.driver import fake_cuda

ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
CPU = torch.device("cpu")


def weights(outputs: int, inputs: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(outputs)
    matrix = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64) / inputs**0.5
    bias = torch.randn(outputs, generator=generator, dtype=torch.float64)
    return matrix.to(dtype), bias.to(dtype)


def rows(count: int, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, width, generator=generator, dtype=torch.float64).to(dtype)


def rows_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("biased", [True, False])
def test_a_layer_computes_what_linear_does(dtype: torch.dtype, *, biased: bool) -> None:
    high = rows_dtype(dtype)
    weight, drawn = weights(70, 33, high)
    bias = drawn if biased else None
    layer = Linear(weight, bias, dtype)
    for count in (1, 2, 3, 7, 16, 65):
        # Rows are slices of wider rows, as in the layers.
        given = rows(count, 50, high)[:, 17:]
        expected = functional.linear(given, weight, bias)
        assert float((layer(given).to(high) - expected).abs().max()) < ROUNDING[dtype] * 2
        residual = rows(count, 70, high)
        total = layer.added_to(residual.clone(), given)
        assert total.dtype is high
        assert float((total - expected - residual).abs().max()) < ROUNDING[dtype] * 2


@pytest.fixture(autouse=True)
def _nothing_tried_yet() -> Iterator[None]:
    linear.products_pay_in_bfloat16.cache_clear()
    yield
    linear.products_pay_in_bfloat16.cache_clear()


@pytest.mark.parametrize("pays", [True, False, None])
def test_a_cpu_that_computes_in_bfloat16_does_so_where_that_is_faster_and_is_tried_only_then(
    monkeypatch: pytest.MonkeyPatch,
    pays: bool | None,  # noqa: FBT001 - a test parameter
) -> None:
    monkeypatch.setattr(device, "cpu_computes_bf16", lambda: pays is not None)
    found = choose_dtype("auto", CPU, None, lambda: pytest.fail("was tried") if pays is None else pays)
    assert found == (torch.bfloat16 if pays else torch.float32)


@pytest.mark.parametrize(("half_s", "pays"), [(0.5, True), (2.0, False)])
def test_the_faster_product_decides(monkeypatch: pytest.MonkeyPatch, half_s: float, pays: bool) -> None:  # noqa: FBT001
    monkeypatch.setattr(linear, "_layers", lambda dtype: dtype)
    monkeypatch.setattr(linear, "_seconds", lambda dtype: half_s if dtype is torch.bfloat16 else 1.0)
    assert linear.products_pay_in_bfloat16() == pays


@pytest.fixture
def three_threads() -> Iterator[None]:
    """Three threads, more than the trial and the other tests use."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_the_trial_runs_on_one_thread_and_leaves_the_number_of_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    used = set[int]()
    monkeypatch.setattr(linear, "_layers", lambda dtype: dtype)
    monkeypatch.setattr(linear, "_seconds", lambda *_: used.add(torch.get_num_threads()) or 1.0)  # type: ignore[func-returns-value]
    assert not linear.products_pay_in_bfloat16()
    assert used == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_trial_that_fails_leaves_the_number_of_threads_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_layers", lambda *_: pytest.fail("no such operator"))
    with pytest.raises(pytest.fail.Exception):
        linear.products_pay_in_bfloat16()
    assert torch.get_num_threads() == 3


def test_the_trial_itself_runs_on_this_machine() -> None:
    assert type(linear.products_pay_in_bfloat16()) is bool


DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LOGITS = st.one_of(st.floats(-6e4, 6e4), st.sampled_from((math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324)))


@examples(200)
@given(rows=st.integers(1, 6).flatmap(lambda v: st.lists(st.lists(LOGITS, min_size=v, max_size=v), min_size=1)),
       dtype=st.sampled_from(DTYPES))  # fmt: skip
def test_rows_leave_a_choice_if_each_has_a_finite_logit_and_none_has_nan_or_plus_infinity(
    rows: list[list[float]], dtype: torch.dtype
) -> None:
    logits = torch.tensor(rows, dtype=dtype)
    bad = logits.isnan() | (logits == math.inf)
    if bool(bad.any()) or bool((logits == -math.inf).all(-1).any()):
        for choose in (require_choices, choices):
            with pytest.raises(LogitsError):
                choose(logits)
    else:
        require_choices(logits)
        assert choices(logits) == logits.float().argmax(-1).tolist()


@pytest.mark.parametrize("missing", [False, True], ids=["library", "no library"])
def test_choices_count_the_offsets_with_and_without_the_compiled_library(
    monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    if missing:
        monkeypatch.setattr(token_choice, "library", lambda: None)
    logits = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, -math.inf]])
    assert choices(logits) == [1, 1]
    assert choices(logits, [torch.tensor([0.0, 0.0, 0.5]), torch.tensor([2.0, 0.0, 40.0])]) == [2, 0]
    with pytest.raises(LogitsError):
        choices(torch.tensor([[1.0, 2.0], [math.nan, 0.0]]), [torch.zeros(2)] * 2)


@pytest.mark.parametrize(
    ("precision", "remedy"),
    [
        ("float16", "choose --dtype bfloat16 or float32, whose range is larger"),
        ("bfloat16", "choose --dtype float32, or check the model's weights"),
        ("float32", "check the model's weights, or choose another model"),
        ("GGUF Q8_0", "check the model's weights, or choose another model"),
    ],
)
def test_the_error_names_the_round_the_dtype_and_a_remedy_that_is_no_dtype_in_use(precision: str, remedy: str) -> None:
    error = LogitsError("round 7", precision)
    assert str(error) == f"the target's logits in round 7 are NaN or infinite, computed in {precision}; {remedy}"
    assert error.exit_code == 3


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
    held = copy.deepcopy(tiny_models.engine(family, "bfloat16").pair.target.hf.module)
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
    module = copy.deepcopy(tiny_models.engine("neox", "bfloat16").pair.target.hf.module)
    with fake_cuda(), torch.no_grad():
        first = LanguageModel.of_module(module.to("cuda"), "target").hf.module
        twin = copy.deepcopy(first)
        twin.get_output_embeddings().weight.zero_()
        ids = torch.tensor([TOKENS], device="cuda")
        assert not twin(ids).logits.cpu().any()
        assert first(ids).logits.cpu().any()
