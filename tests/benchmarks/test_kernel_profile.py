"""Tests of profiles: kernels by time, per round, and nothing but what ran on the device."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks.stages.profile import Profile, Share, shares

CUDA, CPU = "DeviceType.CUDA", "DeviceType.CPU"


def average(name: str, count: int, us: float, device: str = CUDA) -> SimpleNamespace:
    return SimpleNamespace(key=name, count=count, self_device_time_total=us, device_type=device)


def test_figures_are_those_of_one_round_on_the_device_and_the_longest_kernel_comes_first() -> None:
    averages = [average("topk", 4, 6.0), average("gemm", 2, 36.0), average("cudaGraphLaunch", 2, 0.0, CPU)]
    assert shares(averages, 2) == [Share("gemm", 1, 18.0), Share("topk", 2, 3.0)]


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.11
def test_averages_of_torch_s_own_profiler_have_what_is_asked_of_them() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(2).sum()
    averages = profiler.key_averages()
    assert {str(each.device_type) for each in averages} == {CPU}
    assert all(each.count > 0 and each.self_device_time_total == 0 for each in averages)
    assert shares(averages, 1) == []


def test_the_page_fits_a_terminal_and_names_the_kernels() -> None:
    kernels = [Share("void at::native::elementwise_kernel<" + "x" * 300, 3, 200.0), Share("gemm", 1, 18.0)]
    summary, *lines = str(Profile(250.0, kernels)).splitlines()
    assert summary == "250 us a round, 218 us of them in 4 kernels"
    assert max(map(len, lines)) <= 90
    assert lines[-1].endswith("gemm")
