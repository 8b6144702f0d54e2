"""Torch's checks, threads, conversions and profiler on the fake CUDA device."""

import threading
from typing import Any

import pytest
import torch

from tests.decoder.session.cuda_graph.on_gpu import no_hidden_waits
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.tensors import CudaError


def test_where_waits_are_errors_only_waits_for_events_are_none() -> None:
    with fake_cuda():
        numbers, event = torch.ones(3, device="cuda"), torch.cuda.Event()
        with no_hidden_waits():
            event.record()
            event.synchronize()
            on_host = torch.zeros(3, pin_memory=True)
            on_host.copy_(numbers, non_blocking=True)
            for read in (numbers.cpu, numbers.sum().item, lambda: numbers[numbers > 0], lambda: on_host.copy_(numbers)):
                with pytest.raises(CudaError, match="wait"):
                    read()
        assert numbers.cpu().tolist() == on_host.tolist() == [1, 1, 1]


def test_another_thread_reads_numbers_while_this_one_captures() -> None:
    found: list[float] = []
    with fake_cuda():
        numbers = torch.ones(3, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            numbers.add_(1)
            other = threading.Thread(target=lambda: found.append(torch.ones(8, device="cuda").sum().item()))
            other.start()
            other.join()
            with pytest.raises(CudaError, match="within a capture"):
                numbers.sum().item()
        graph.replay()
        assert numbers.cpu().tolist() == [2, 2, 2]
    assert found == [8]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_become_float32_within_a_softmax_as_on_cuda_also_in_a_replay(dtype: torch.dtype) -> None:
    later = torch.tensor([0.5, -1.0, 3.0], dtype=dtype)
    with fake_cuda():
        logits, logarithms = torch.zeros(3, dtype=dtype, device="cuda"), torch.zeros(3, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logarithms.copy_(logits.log_softmax(-1, torch.float32))
        logits.copy_(later)
        graph.replay()
        found = logarithms.cpu()
    assert found.equal(later.float().log_softmax(-1))


def test_a_seeded_generator_draws_the_numbers_of_the_cpu() -> None:
    right = torch.rand(3, generator=torch.Generator().manual_seed(7))
    with fake_cuda():
        generator = torch.Generator(torch.device("cuda")).manual_seed(7)
        assert torch.zeros(3, device="cuda").uniform_(generator=generator).cpu().equal(right)


def test_a_module_that_is_moved_to_where_it_is_stays_as_it_is() -> None:
    module = torch.nn.Linear(2, 3)
    weights = module.weight.tolist()
    with fake_cuda():
        moved = module.to("cuda").to("cuda")
        assert moved.weight.device.type == "cuda"
        assert moved.weight.tolist() == weights


def test_a_profile_counts_the_operators_of_replays_and_of_direct_launches_without_times() -> None:
    with fake_cuda():
        numbers, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            numbers.add_(1).mul_(2)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            graph.replay()
            numbers.neg_()
        graph.replay()
        averages: Any = profiler.key_averages()
    assert {each.key: each.count for each in averages} == {"aten::add_": 1, "aten::mul_": 1, "aten::neg_": 1}
    assert {(each.self_device_time_total, str(each.device_type)) for each in averages} == {(0, "DeviceType.CUDA")}
