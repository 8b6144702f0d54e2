"""Packed matrix products equal torch's `linear`, with fallbacks; bfloat16 is chosen only if it is faster."""

import platform
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from decoder.forward.cpu import packed
from decoder.forward.cpu.packed import FbgemmLinear, Linear, OneDnnLinear, PublicLinear, TwoLayoutLinear, pack, works
from decoder.system import device
from decoder.system.device import choose_dtype

ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
HALF = (torch.float16, torch.bfloat16)
COMBINATIONS = [
    *((FbgemmLinear, dtype) for dtype in HALF),
    *((OneDnnLinear, dtype) for dtype in (torch.float32, *HALF)),
    (TwoLayoutLinear, torch.float32),
    *((PublicLinear, dtype) for dtype in ROUNDING),
]
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


@pytest.mark.parametrize(("kind", "dtype"), COMBINATIONS)
def test_every_kind_computes_what_linear_does(kind: type, dtype: torch.dtype) -> None:
    if kind is not PublicLinear and not works(kind, dtype):
        pytest.skip(f"{kind.__name__} does not run here in {dtype}")
    high = rows_dtype(dtype)
    weight, bias = weights(70, 33, high)
    layer: Linear = kind(weight, bias, dtype)
    for count in (1, 2, 3, 7, 16, 65):
        # Rows are slices of wider rows, as in the layers.
        given = rows(count, 50, high)[:, 17:]
        expected = functional.linear(given, weight, bias)
        assert float((layer(given).to(high) - expected).abs().max()) < ROUNDING[dtype] * 2
        residual = rows(count, 70, high)
        total = layer.added_to(residual.clone(), given)
        assert total.dtype is high
        assert float((total - expected - residual).abs().max()) < ROUNDING[dtype] * 2


@pytest.mark.parametrize(("kind", "dtype"), COMBINATIONS)
def test_a_bias_may_be_missing(kind: type, dtype: torch.dtype) -> None:
    if kind is not PublicLinear and not works(kind, dtype):
        pytest.skip(f"{kind.__name__} does not run here in {dtype}")
    weight, _ = weights(8, 16, rows_dtype(dtype))
    given = rows(3, 16, rows_dtype(dtype))
    found = kind(weight, None, dtype)(given).to(given.dtype)
    assert float((found - functional.linear(given, weight)).abs().max()) < ROUNDING[dtype] * 2


@pytest.mark.skipif(not works(FbgemmLinear, torch.bfloat16), reason="no FBGEMM here")
def test_bfloat16_weights_lose_nothing_in_float16() -> None:
    weight, bias = weights(40, 64)
    rounded, given = weight.bfloat16().float(), rows(4, 64)
    found = FbgemmLinear(rounded, bias, torch.bfloat16)(given)
    assert float((found - functional.linear(given, rounded, bias)).abs().max()) < ROUNDING[torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_beyond_float16_are_not_cut(dtype: torch.dtype) -> None:
    # FBGEMM would clamp such weights in place.
    large = 1e5 if dtype is torch.bfloat16 else 6e4
    found = pack(torch.full((8, 8), large), None, dtype)(torch.full((1, 8), 1e-2)).float()
    assert float((found / (8e-2 * large) - 1).abs().max()) < 1e-2


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not torch.backends.mkldnn.is_available(), reason="packed operators are x86's"
)
def test_packed_operators_work_where_torch_has_them() -> None:
    """Otherwise the tests above would pass with slow fallbacks only."""
    assert works(OneDnnLinear, torch.float32)


def test_nothing_is_packed_in_float64() -> None:
    assert isinstance(pack(*weights(8, 16, torch.float64), torch.float64), PublicLinear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_any_operator_the_public_one_serves(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(packed, "works", lambda *_: False)
    assert isinstance(pack(*weights(8, 16), dtype), PublicLinear)


def test_without_any_operator_float16_is_computed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "works", lambda *_: False)
    weight, bias = weights(8, 16)
    assert pack(weight, bias, torch.float16)(rows(2, 16)).dtype is torch.float32


class Missing(OneDnnLinear):
    def __init__(self, *_: object) -> None:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")


class Refusing(OneDnnLinear):
    def __call__(self, _: Tensor) -> Tensor:
        raise RuntimeError("this CPU is too old")


class Wrong(PublicLinear):
    def __call__(self, rows: Tensor) -> Tensor:
        return super().__call__(rows) * 1.5


class WrongSum(PublicLinear):
    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        return residual + 0 * self(rows)


@pytest.mark.parametrize("kind", [Missing, Refusing, Wrong, WrongSum])
def test_an_operator_that_is_missing_or_wrong_is_not_used(kind: type) -> None:
    assert not works(kind, torch.float32)


def test_an_operator_that_is_right_is_used() -> None:
    assert works(PublicLinear, torch.float32)


@pytest.fixture(autouse=True)
def _nothing_tried_yet() -> Iterator[None]:
    for trial in (packed.bfloat16_pays, packed.second_layout_pays):
        trial.cache_clear()
    yield
    for trial in (packed.bfloat16_pays, packed.second_layout_pays):
        trial.cache_clear()


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
    monkeypatch.setattr(packed, "_layers", lambda _, dtype: dtype)
    monkeypatch.setattr(packed, "_seconds", lambda dtype, _: half_s if dtype is torch.bfloat16 else 1.0)
    assert packed.bfloat16_pays() == pays


@pytest.mark.parametrize(("two_layouts_s", "kind"), [(0.8, TwoLayoutLinear), (0.97, OneDnnLinear)])
def test_a_second_layout_is_kept_only_where_one_row_is_much_faster(
    monkeypatch: pytest.MonkeyPatch, two_layouts_s: float, kind: type
) -> None:
    monkeypatch.setattr(packed, "works", lambda maker, _: maker is not FbgemmLinear)
    monkeypatch.setattr(packed, "_layers", lambda maker, _: maker)
    monkeypatch.setattr(packed, "_seconds", lambda maker, _: two_layouts_s if maker is TwoLayoutLinear else 1.0)
    assert type(pack(*weights(8, 16), torch.float32)) is kind


def test_a_large_matrix_has_one_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "second_layout_pays", lambda: True)
    monkeypatch.setattr(packed, "SECOND_LAYOUT_WEIGHTS", 8 * 16 - 1)
    assert not isinstance(pack(*weights(8, 16), torch.float32), TwoLayoutLinear)


@pytest.mark.skipif(not works(OneDnnLinear, torch.float32), reason="no oneDNN here")
@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("threads", "rows_of_packed"), [(1, [2]), (3, [1, 2])])
def test_packed_weights_serve_several_rows_and_several_threads(
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    rows_of_packed: list[int],
) -> None:
    torch.set_num_threads(threads)
    seen: list[int] = []
    call = OneDnnLinear.__call__

    def counted(layer: OneDnnLinear, given: Tensor) -> Tensor:
        seen.append(len(given))
        return call(layer, given)

    monkeypatch.setattr(OneDnnLinear, "__call__", counted)
    layer = TwoLayoutLinear(*weights(8, 16), torch.float32)
    for count in (1, 2):
        layer(rows(count, 16))
    assert seen == rows_of_packed


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

    monkeypatch.setattr(packed, "_layers", lambda *kind: kind)
    monkeypatch.setattr(packed, "_seconds", seconds)
    assert not packed.bfloat16_pays()
    assert used == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_trial_that_fails_leaves_the_number_of_threads_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_layers", lambda *_: pytest.fail("no such operator"))
    with pytest.raises(pytest.fail.Exception):
        packed.bfloat16_pays()
    assert torch.get_num_threads() == 3


def test_the_trial_itself_runs_on_this_machine() -> None:
    assert {type(trial()) for trial in (packed.bfloat16_pays, packed.second_layout_pays)} == {bool}
