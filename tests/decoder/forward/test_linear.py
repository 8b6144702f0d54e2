"""Linear layers equal torch's `linear` in every dtype; bfloat16 is chosen only if it is faster."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from decoder.forward import linear
from decoder.forward.linear import Linear
from decoder.system import device
from decoder.system.device import choose_dtype

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
def test_a_layer_computes_what_linear_does(dtype: torch.dtype) -> None:
    high = rows_dtype(dtype)
    weight, bias = weights(70, 33, high)
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


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_bias_may_be_missing(dtype: torch.dtype) -> None:
    weight, _ = weights(8, 16, rows_dtype(dtype))
    given = rows(3, 16, rows_dtype(dtype))
    found = Linear(weight, None, dtype)(given).to(given.dtype)
    assert float((found - functional.linear(given, weight)).abs().max()) < ROUNDING[dtype] * 2


@pytest.fixture(autouse=True)
def _nothing_tried_yet() -> Iterator[None]:
    linear.products_pay_in_bfloat16.cache_clear()
    yield
    linear.products_pay_in_bfloat16.cache_clear()


@pytest.mark.parametrize(("pays", "chosen"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_cpu_that_computes_in_bfloat16_does_so_where_that_is_faster(
    monkeypatch: pytest.MonkeyPatch,
    pays: bool,  # noqa: FBT001 - a test parameter
    chosen: torch.dtype,
) -> None:
    monkeypatch.setattr(device, "cpu_computes_bf16", lambda: True)
    assert choose_dtype("auto", CPU, None, lambda: pays) == chosen


def test_a_cpu_that_does_not_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_computes_bf16", lambda: False)
    assert choose_dtype("auto", CPU, None, lambda: pytest.fail("was tried")) == torch.float32


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

    def seconds(*_: object) -> float:
        used.add(torch.get_num_threads())
        return 1.0

    monkeypatch.setattr(linear, "_layers", lambda dtype: dtype)
    monkeypatch.setattr(linear, "_seconds", seconds)
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
