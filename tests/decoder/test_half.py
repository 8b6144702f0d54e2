"""`auto` is bfloat16 only where a CPU is faster in it."""

import pytest
import torch

from decoder import device
from decoder.device import choose_dtype
from decoder.lean import half

CPU = torch.device("cpu")


@pytest.mark.parametrize(("pays", "chosen"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_cpu_that_computes_in_bfloat16_does_so_where_that_is_faster(
    monkeypatch: pytest.MonkeyPatch,
    pays: bool,  # noqa: FBT001 - a case of the test
    chosen: torch.dtype,
) -> None:
    monkeypatch.setattr(device, "cpu_computes_bf16", lambda: True)
    assert choose_dtype("auto", CPU, None, lambda: pays) == chosen


def test_a_cpu_that_does_not_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_computes_bf16", lambda: False)
    assert choose_dtype("auto", CPU, None, lambda: pytest.fail("was tried")) == torch.float32


@pytest.mark.parametrize(("half_s", "pays"), [(0.5, True), (2.0, False)])
def test_the_faster_product_decides(monkeypatch: pytest.MonkeyPatch, half_s: float, pays: bool) -> None:  # noqa: FBT001
    monkeypatch.setattr(half, "_layers", lambda dtype: dtype)
    monkeypatch.setattr(half, "_seconds", lambda dtype: half_s if dtype is torch.bfloat16 else 1.0)
    half.bfloat16_pays.cache_clear()
    try:
        assert half.bfloat16_pays() == pays
    finally:
        half.bfloat16_pays.cache_clear()


def test_the_trial_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    half.bfloat16_pays.cache_clear()
    assert isinstance(half.bfloat16_pays(), bool)
    assert torch.get_num_threads() == before
