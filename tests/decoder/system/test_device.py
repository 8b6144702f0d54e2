"""Settings of a device before models are loaded, and torch defaults that remain."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from decoder import load_pair
from decoder.run import loading
from decoder.system import device
from decoder.system.device import CUDNN_RANK, GROUPED, set_up
from dynatui.lab.bench import shapes
from tests.decoder.makers import TinyModels

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(autouse=True)
def _as_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(CUDNN_RANK, raising=False)
    monkeypatch.delenv(GROUPED, raising=False)
    monkeypatch.setattr(device, "_GROUPED_BY_USER", None)
    products = torch.backends.cuda.matmul
    before = torch.backends.cuda.cudnn_sdp_enabled(), *sums_in_half_precision()
    torch.backends.cuda.enable_cudnn_sdp(enabled=True)
    products.allow_fp16_reduced_precision_reduction = products.allow_bf16_reduced_precision_reduction = True
    yield
    torch.backends.cuda.enable_cudnn_sdp(enabled=before[0])
    products.allow_fp16_reduced_precision_reduction, products.allow_bf16_reduced_precision_reduction = before[1:]


def sums_in_half_precision() -> tuple[bool, bool]:
    """Whether products of float16 and of bfloat16 may be accumulated with less precision than float32."""
    products = torch.backends.cuda.matmul
    return products.allow_fp16_reduced_precision_reduction, products.allow_bf16_reduced_precision_reduction


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_cudnn_s_attention_is_off_on_a_gpu_unless_the_user_ranks_it(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    if value:
        monkeypatch.setenv(CUDNN_RANK, value)
    set_up(CUDA, torch.bfloat16)
    assert torch.backends.cuda.cudnn_sdp_enabled() is bool(value)


def test_float32_is_not_tf32_on_a_gpu_also_where_a_container_says_so() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        set_up(CUDA, torch.float32)
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def test_sums_of_products_in_half_precision_are_in_float32_on_a_gpu_and_a_cpu_needs_no_kernels_of_its_own() -> None:
    for place, dtype, sums in (
        (CPU, torch.float16, (True, True)),
        (CPU, torch.bfloat16, (True, True)),
        (CUDA, torch.float32, (True, True)),
        (CUDA, torch.bfloat16, (True, False)),
        (CUDA, torch.float16, (False, False)),
    ):
        set_up(place, dtype)
        assert sums_in_half_precision() == sums
        assert torch.backends.cuda.cudnn_sdp_enabled() is (place == CPU)


@pytest.mark.parametrize("fused", [True, False])
def test_heads_that_share_keys_are_left_to_torch_on_a_cpu_if_it_fuses_them(
    monkeypatch: pytest.MonkeyPatch, *, fused: bool
) -> None:
    monkeypatch.setattr(device, "fuses_grouped_heads", lambda: fused)
    set_up(CPU, torch.float32)
    assert os.environ.get(GROUPED) == ("1" if fused else None)
    set_up(CUDA, torch.float32)
    assert GROUPED not in os.environ


def test_who_decides_on_heads_that_share_keys_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_GROUPED_BY_USER", "0")
    monkeypatch.setenv(GROUPED, "0")
    set_up(CPU, torch.float32)
    assert os.environ[GROUPED] == "0"


def test_a_device_is_set_up_before_any_model_is_on_it(
    tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SetUpError(Exception):
        """Ends the set-up early."""

    def stop(*given: object) -> None:
        raise SetUpError(*given)

    pair, config = tiny_models.pair("neox"), tmp_path / "config.json"
    config.write_text((tiny_models.pair("neox").target / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    for module in (loading, shapes):
        monkeypatch.setattr(module, "set_up", stop)
    monkeypatch.setattr(loading, "load_model", lambda *_: pytest.fail("it is loaded already"))
    monkeypatch.setattr(shapes, "_random_module", lambda *_: pytest.fail("it is made already"))
    with pytest.raises(SetUpError) as found:
        load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float16")
    assert found.value.args == (CPU, torch.float16)
    with pytest.raises(SetUpError) as found:
        shapes.random_pair(str(config), str(config), device="cpu", dtype="bfloat16")
    assert found.value.args == (CPU, torch.bfloat16)
