"""Whole rounds on a fake CUDA device: the rounds of the host, by graphs that touch only the device, with one wait.

Then the stand-ins themselves: the device, its driver, and records of work on a CPU.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count, cycle
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder.knobs import KnobName
from decoder.methods.linear import Linear
from decoder.models.checkpoints import EMBEDDED, EMBEDDED_TARGET
from decoder.run import loading
from decoder.run.decoding_path import DecodingPath, decoding_path
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.capture_guard import NotCapturableError, refuse_waits
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.protocol import Outcome
from decoder.session.steering import KnobState, Turn
from decoder.tree import TokenTree
from tests.decoder.makers import with_pair
from tests.decoder.session.cuda_graph.matching import (
    SMALL_METHODS,
    Case,
    Devices,
    check,
    match,
)
from tests.decoder.session.cuda_graph.on_gpu import no_hidden_waits
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.fake_cuda.recording import record
from tests.fake_cuda.tensors import CUDA, CudaError, Device
from tests.heads import name

SAMPLINGS = Sampling(1.0), Sampling(0.8, 20, 0.9)
TURNS: Mapping[int, Sequence[tuple[KnobName, float]]] = {1: [("tau_h", 0.6)], 2: [("d0", 1.0)], 3: [("tau_l", 0.3)]}
small = partial(Case, dtype="float32", seed=3, limit=12)
CASES = [
    *(small("neox", method) for method in SMALL_METHODS),
    *(small(pair, method) for pair in ("llama", name("llama", "flat")) for method in ("linear", "best")),
    *(small(pair, by_module=True) for pair in ("qwen3", "gpt2")),
    *(small(pair, sampling=each) for pair, each in zip(("neox", "llama", name("neox", "nested")), cycle(SAMPLINGS))),
    *(small(pair, sampling=each) for pair, each in zip(("wide-target", "wide-draft"), SAMPLINGS, strict=True)),
    *(small("neox", method, alone=True, turns=True) for method in ("ar", "linear", "fixed", "lively", "best")),
    *(small("neox", sampling=each, alone=True) for each in SAMPLINGS),
    small(name("llama", "EAGLE-3.1"), turns=True),
]


def rounds(devices: Devices, case: Case) -> Device:
    """Decodes a text on the host and on a fake device, requires equal rounds, and checks what each round asks for."""
    engine = devices.models.engine(case.pair, case.dtype).sampled(case.seed, Schedule(case.sampling))
    engine = with_pair(engine, draft=None) if case.alone else engine
    prompt, step, number = devices.prompt(case.pair) * (3 if case.alone else 1), GraphSession.step, count()

    def watched(session: GraphSession, turns: tuple[Turn, ...]) -> Outcome:
        device.clear()
        captured = len(device.graphs)
        outcome = step(session, turns)
        if next(number) and len(device.graphs) == captured and not outcome.finished:
            asked, redrawn = device.counts(), bool(outcome.turned_before)
            assert asked["wait"] == 1 + redrawn
            # A turned knob undoes a verification that is queued already, and the tree is drafted again.
            assert asked["replay"] <= (1 if case.alone else 2) * (1 + redrawn)
            assert asked["read"] == asked["wait for all"] == 0
        return outcome

    with fake_cuda() as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphSession, "step", watched)
        moved, turns = on_fake_device(engine, by_module=case.by_module), TURNS if case.turns else {}
        found = match(moved, prompt, case.limit, SMALL_METHODS[case.rules], turns, host_engine=engine)
    assert len(found) > 2
    return device


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rounds_are_those_of_the_host_and_each_waits_once(devices: Devices, case: Case) -> None:
    rounds(devices, case)


def test_turned_knobs_draft_the_tree_again_without_another_capture(devices: Devices) -> None:
    captured = len(rounds(devices, small("neox")).graphs)
    assert len(rounds(devices, small("neox", turns=True)).graphs) <= captured + 2


@pytest.mark.parametrize("method", ["ar", "best"])
def test_no_round_makes_room_for_keys_and_values(devices: Devices, method: str) -> None:
    engine, prompt = devices.models.engine("long"), [7 * place % 260 for place in range(1000)]
    with fake_cuda() as device:
        session = devices.begun(on_fake_device(engine), SMALL_METHODS[method], 20, prompt=prompt)
        session.step(())
        made = [each for graph in device.graphs for each in graph.launches if not each.name.endswith("_")]
        assert max(launch.result_bytes for launch in made) < session._slot.target.store.nbytes / 2


def test_the_embedded_head_is_loaded_into_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TRIED", (Linear(2),))
    with fake_cuda() as device:
        engine = loading.load_pair(str(EMBEDDED_TARGET), str(EMBEDDED / "books-eagle3"), device="cuda", kernels=False)
        assert engine.pair.target.dtype == torch.float32
        assert decoding_path(engine) == DecodingPath("cuda graphs", "native model")
        assert engine.pair.target.runs_without_module
        session = engine.session([5, 6, 7, 8], 12, KnobState(Linear(2)))
        assert isinstance(session, GraphSession)
        session.close()
    assert device.graphs


@pytest.mark.parametrize(("error", "same"), [(2e-4, True), (0.01, False)])
def test_rounds_are_the_same_up_to_the_rounding_of_weights_in_another_layout(error: float, *, same: bool) -> None:
    expected, found = (Outcome(TokenTree([1, 2], [-1, 0], [0.0, -1.0 + shift])) for shift in (0.0, error))
    with nullcontext() if same else pytest.raises(AssertionError):
        check(found, expected)


# Work that a device cannot capture

Work = Callable[[Tensor], object]
WAITS: Sequence[Work] = (
    lambda numbers: numbers[0].item(),
    lambda numbers: int(numbers[0]),
    lambda numbers: bool(numbers.any()),
    lambda numbers: 2.0 in numbers,
    lambda numbers: range(3)[numbers[0].long()],
    lambda numbers: numbers.cpu(),
    lambda numbers: numbers.nonzero(),
    lambda numbers: torch.where(numbers > 0),
    lambda numbers: numbers[numbers > 0],
    lambda numbers: numbers.unique(),
    lambda numbers: numbers + torch.tensor([1.0, 2.0], device=numbers.device),
    lambda numbers: numbers[[0, 1]],
    lambda numbers: numbers + numbers.new_tensor(3.0),
)
ALSO_OF_A_RECORD: Sequence[Work] = (
    lambda numbers: numbers.tolist(),
    lambda numbers: numbers.numpy(),
    lambda numbers: torch.equal(numbers, numbers),
    lambda numbers: numbers.masked_select(numbers > 0),
    lambda numbers: numbers.repeat_interleave(numbers.long()),
    lambda numbers: numbers.index_put_((numbers > 0,), numbers[:1]),
    lambda numbers: numbers + torch.as_tensor(3.0),
    lambda numbers: torch.asarray([1.0]) + numbers,
)
ALSO_OF_THE_DEVICE: Sequence[Work] = (
    lambda _: torch.zeros(3).to("cuda"),
    lambda _: torch.zeros(3),
    lambda _: torch.cuda.Event().record(),
    lambda _: torch.cuda.synchronize(),
)
MODES = pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])


@MODES
@pytest.mark.parametrize("work", [*WAITS, *ALSO_OF_A_RECORD])
def test_numbers_that_go_to_the_host_or_come_from_it_are_not_recorded(work: Work, mode: Callable[[], Any]) -> None:
    numbers = torch.ones(2)
    with mode(), pytest.raises(NotCapturableError):
        record(lambda: work(numbers))


@MODES
@pytest.mark.parametrize("work", [*WAITS, lambda numbers: torch.zeros(2).copy_(numbers)])
def test_where_the_host_would_wait_work_is_refused(work: Work, mode: Callable[[], Any]) -> None:
    with fake_cuda():
        numbers = torch.ones(2, device=CUDA)
        with mode(), pytest.raises(NotCapturableError):
            refuse_waits(lambda: work(numbers), CUDA)


@pytest.mark.parametrize(
    "work",
    [
        lambda numbers: numbers[numbers.long()],
        lambda numbers: numbers.to(torch.float64).copy_(numbers),
        lambda numbers: torch.where(numbers > 0, numbers, 0.0),
        lambda numbers: numbers.masked_fill(numbers > 0, 2.0),
        lambda numbers: torch.nn.functional.scaled_dot_product_attention(*[numbers.view(1, 1, 2, 1)] * 3),
    ],
)
def test_all_else_is_done(work: Callable[[Tensor], Tensor]) -> None:
    with fake_cuda():
        found, numbers = torch.zeros(2, dtype=torch.float64, device=CUDA), torch.ones(2, device=CUDA)
        with torch.inference_mode():
            refuse_waits(lambda: found.copy_(work(numbers).flatten()), CUDA)
            refuse_waits(lambda: torch.ones(2).sum().item(), CUDA)  # a number of the host's own
        assert bool(found.any())


@pytest.mark.parametrize("work", [*WAITS, *ALSO_OF_THE_DEVICE])
def test_within_a_capture_nothing_may_read_wait_or_touch_the_host(work: Work) -> None:
    with fake_cuda():
        numbers = torch.ones(2, device="cuda")
        with pytest.raises((CudaError, NotCapturableError)), captured():
            work(numbers)


# The device


def captured(graph: torch.cuda.CUDAGraph | None = None) -> torch.cuda.graph:
    return torch.cuda.graph(graph or torch.cuda.CUDAGraph())


def test_operands_on_different_devices_are_refused() -> None:
    with fake_cuda(), pytest.raises(CudaError, match="operands on cuda:0 and on cpu"):
        torch.zeros(3, device="cuda") + torch.ones(3)


@pytest.mark.parametrize("values", [True, False])
def test_a_number_that_the_host_reads_is_logged(*, values: bool) -> None:
    with fake_cuda(values=values) as device:
        number = torch.ones(3, device="cuda").sum()
        device.clear()
        float(number)
    assert device.counts() == {"read": 1}


def test_a_graph_replays_operators_and_no_python() -> None:
    with fake_cuda() as device:
        total, graph, called = torch.zeros((), device="cuda"), torch.cuda.CUDAGraph(), list[str]()
        with captured(graph):
            called.append("work")
            total.add_(2)
        assert float(total) == 0
        graph.replay()
        graph.replay()
        assert float(total) == 4
    assert called == ["work"]
    assert [launch.name for launch in device.graphs[0].launches] == ["add_"]


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


# Records


def test_a_record_repeats_operations_on_the_tensors_that_were_there_and_changes_nothing_before() -> None:
    total, step = torch.zeros(3), torch.ones(3)
    repeated = record(lambda: total.add_(step * 2)[1:].mul_(-1).neg_())
    assert total.tolist() == [0, 0, 0]
    step.fill_(5)
    repeated()
    repeated()
    assert total.tolist() == [20, 20, 20]


def test_what_was_made_meanwhile_is_garbage_afterwards() -> None:
    kept: list[Tensor] = []
    number = torch.ones(2)
    repeated = record(lambda: kept.append(number + 1))
    repeated()
    assert (kept[0] > 1e30).all()


def test_views_and_memory_that_is_not_filled_are_no_kernels() -> None:
    numbers = torch.zeros(4, 4)
    work = record(lambda: [numbers.view(2, 8)[1].t(), numbers.new_empty(3), numbers.unbind(), numbers.expand(2, 4, 4)])
    assert work.launches == 0
    assert record(lambda: [numbers.add_(1), numbers + 1, torch.cat((numbers, numbers))]).launches == 3
