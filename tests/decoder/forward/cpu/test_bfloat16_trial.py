"""`auto` is bfloat16 only where a CPU is faster in it."""

from collections.abc import Iterator

import pytest
import torch

from decoder import device
from decoder.device import choose_dtype
from decoder.forward.cpu import bfloat16_trial as half

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _nothing_tried_yet() -> Iterator[None]:
    half.bfloat16_pays.cache_clear()
    yield
    half.bfloat16_pays.cache_clear()


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
    assert half.bfloat16_pays() == pays


@pytest.fixture
def three_threads() -> Iterator[None]:
    """More than the trial computes with, and than the other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_the_trial_runs_on_one_thread_and_leaves_the_number_of_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    used = set[int]()

    def seconds(_: object) -> float:
        used.add(torch.get_num_threads())
        return 1.0

    monkeypatch.setattr(half, "_layers", lambda dtype: dtype)
    monkeypatch.setattr(half, "_seconds", seconds)
    assert not half.bfloat16_pays()
    assert used == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_trial_that_fails_leaves_the_number_of_threads_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "_layers", lambda _: pytest.fail("no such operator"))
    with pytest.raises(pytest.fail.Exception):
        half.bfloat16_pays()
    assert torch.get_num_threads() == 3


def test_the_trial_itself_runs_on_this_machine() -> None:
    assert isinstance(half.bfloat16_pays(), bool)
