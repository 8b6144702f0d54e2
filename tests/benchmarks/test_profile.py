"""Tests of profiles: number of nodes, time by kernel, and gaps between launches."""

from types import SimpleNamespace

import pytest

from benchmarks.stages.profile import Kernel, Share, kernels_of, page, profile

DRAFT = [Kernel("topk", 0, 4, 1), Kernel("gemm", 4, 10, 1), Kernel("topk", 12, 14, 1)]
VERIFY = [Kernel("gemm", 20, 50, 2), Kernel("copy", 45, 55, 2)]
LATER = [
    Kernel(kernel.name, kernel.start_us + 100, kernel.end_us + 100, kernel.launch + 2) for kernel in DRAFT + VERIFY
]
ROUNDS = [*VERIFY, *DRAFT, *LATER]


def test_nodes_and_time_are_told_by_kernel_and_round_the_longest_first() -> None:
    found = profile(ROUNDS, 2)
    assert found.nodes == 5
    assert found.kernels == [Share("gemm", 2, 36), Share("copy", 1, 10), Share("topk", 2, 6)]


def test_time_in_which_two_run_beside_each_other_counts_once() -> None:
    assert profile(VERIFY, 1).busy_us == 35
    assert profile(ROUNDS, 2).busy_us == 12 + 35


def test_gaps_lie_between_what_the_host_asked_for_and_not_within() -> None:
    found = profile(ROUNDS, 2)
    assert found.gap_us == (6 + 45 + 6) / 2
    assert found.longest_gap_us == 45


def test_where_nothing_ran_nothing_is_told() -> None:
    found = profile([], 20)
    assert (found.nodes, found.busy_us, found.longest_gap_us, found.kernels) == (0, 0, 0, [])
    assert "20 rounds" in page(found)


def test_the_page_fits_a_terminal_and_names_the_kernels() -> None:
    long = [Kernel("void at::native::elementwise_kernel<" + "x" * 300, 0, 2, 9)]
    lines = page(profile([*ROUNDS, *long], 2)).splitlines()
    assert max(map(len, lines[1:])) <= 90
    assert any(line.endswith("gemm") for line in lines)


def event(kind: str, launch: int, name: str = "gemm") -> SimpleNamespace:
    return SimpleNamespace(
        name=lambda: name,
        start_ns=lambda: 2000,
        duration_ns=lambda: 500,
        correlation_id=lambda: launch,
        device_type=lambda: f"DeviceType.{kind}",
    )


def test_only_what_ran_on_the_device_is_looked_at() -> None:
    found = kernels_of([event("CUDA", 7), event("CPU", 7, "cudaGraphLaunch"), event("CUDA", 0, "an annotation")])
    assert found == [Kernel("gemm", 2.0, 2.5, 7)]


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.11
def test_events_of_torch_s_own_profiler_have_what_is_asked_of_them() -> None:
    import torch  # noqa: PLC0415 - only this test needs it

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(2).sum()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    assert events
    assert kernels_of(events) == []
    assert kernels_of([_on_cuda(each) for each in events])[0].end_us > 0


def _on_cuda(torchs: object) -> SimpleNamespace:
    names = ("name", "start_ns", "duration_ns")
    return SimpleNamespace(
        **{name: getattr(torchs, name) for name in names},
        correlation_id=lambda: getattr(torchs, "correlation_id")() or 1,  # noqa: B009 - the object is untyped
        device_type=lambda: "DeviceType.CUDA",
    )


@pytest.mark.parametrize("rounds", [1, 20])
def test_figures_are_those_of_one_round(rounds: int) -> None:
    assert profile(DRAFT, rounds).kernels[0].us == pytest.approx(6 / rounds)
