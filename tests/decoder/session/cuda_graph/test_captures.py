"""How work is tried and captured, mistakes of rounds that plain calls do not reveal and records do, and what machines
have that a single sound GPU has not: a second GPU, a GPU that failed, the collector's timing.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import count, cycle
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig, decode
from decoder.engine import Engine
from decoder.errors import LostDeviceError
from decoder.events import End, Event, Round
from decoder.knobs import KnobName
from decoder.methods.linear import Linear
from decoder.models.checkpoints import EMBEDDED, EMBEDDED_TARGET
from decoder.run import loading
from decoder.run.decoding_path import DecodingPath, decoding_path
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph import kernel_trial, self_test
from decoder.session.cuda_graph.capture_guard import NotCapturableError, refuse_waits
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.slots import GraphSlots, tried
from decoder.session.protocol import Outcome
from decoder.session.steering import KnobState, Turn
from decoder.system.device import WARM_UPS, Graphs, Mark, set_up
from decoder.tree import TokenTree
from tests.decoder.makers import PROMPT, TinyModels, with_pair
from tests.decoder.session.cuda_graph.matching import (
    SMALL_METHODS,
    Case,
    Devices,
    check,
    match,
)
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.fake_cuda.tensors import CUDA, CudaError, Device
from tests.heads import name

CPU = torch.device("cpu")


# Mistakes that plain calls do not reveal


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.engine("neox", "float64")


# Rounds


# Captures


def test_what_tried_work_has_done_is_undone_whether_it_is_refused_or_not() -> None:
    number = torch.zeros(())
    with pytest.raises(NotCapturableError):
        tried(lambda: [number.add_(1), number.item()], number.zero_, CPU)  # type: ignore[arg-type]
    assert float(number) == 0
    tried(lambda: number.add_(1), number.zero_, CPU)  # type: ignore[arg-type]
    assert float(number) == 0


def test_of_work_that_is_refused_nothing_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    number, found = torch.zeros(()), list[object]()
    slots = GraphSlots()
    monkeypatch.setattr(Graphs, "capture", lambda _, work, undo: found.append((work, undo)) or work)  # type: ignore[func-returns-value]
    with pytest.raises(NotCapturableError):
        slots.repeatable(lambda: number.add_(1).item(), CPU)  # type: ignore[arg-type]
    assert not found
    slots.repeatable(lambda: number.add_(1), CPU)  # type: ignore[arg-type]
    assert len(found) == 1


def test_work_is_tried_on_the_stream_on_which_it_is_captured_and_undone_each_time() -> None:
    with fake_cuda() as device:
        own = torch.cuda.current_stream()

        def note(what: str) -> None:
            device.log.append(f"{what} on the {'thread' if torch.cuda.current_stream() is own else 'side'}'s stream")

        repeated = Graphs(CUDA).capture(lambda: note("work"), lambda: note("undo"))
        tries = ["work on the side's stream", "undo on the side's stream"] * WARM_UPS
        before, after = "another stream waits", "the current stream waits"
        assert device.log == [before, *tries, after, "wait for all", "work on the side's stream"]
        repeated()
        assert device.log[-1] == "replay"
        assert torch.cuda.current_stream() is own


def test_all_captures_share_one_pool_and_begin_outside_of_inference_mode_whoever_asks_for_them() -> None:
    """Torch before 2.11 reuses tensors of the first capture, so later captures fail if these are inference tensors."""
    modes = set[tuple[bool, bool]]()
    with fake_cuda() as device:
        graphs = Graphs(CUDA)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                graphs.capture(
                    lambda: modes.add((torch.is_inference_mode_enabled(), torch.is_grad_enabled())), lambda: None
                )
        pools = [graph.options for graph in device.graphs]
    assert modes == {(False, False)}
    assert pools == [{"pool": graphs._pool, "capture_error_mode": "thread_local"}] * 2
    assert graphs._pool


def test_a_capture_that_fails_leaves_the_thread_on_its_own_stream() -> None:
    def work() -> None:
        if device.capture:
            raise RuntimeError("the capture is invalid")

    with fake_cuda() as device:
        own = torch.cuda.current_stream()
        with pytest.raises(RuntimeError, match="invalid"):
            Graphs(CUDA).capture(work, lambda: None)
        assert torch.cuda.current_stream() is own


def test_a_mark_is_an_event_that_knows_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(100)
    with fake_cuda() as device:
        monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
        first, second = Mark(CUDA), Mark(CUDA)
        second.wait()
        assert device.log == ["event", "event", "wait"]
        assert second.seconds_since(first) == 2.0


def test_elsewhere_than_on_cuda_work_is_just_done() -> None:
    done: list[str] = []
    repeated = Graphs(CPU).capture(lambda: done.append("work"), lambda: done.append("undone"))
    assert done == []
    repeated()
    assert done == ["work"]


def test_nothing_is_collected_within_a_capture() -> None:
    collected: list[bool] = []
    with fake_cuda():
        Graphs(CUDA).capture(lambda: collected.append(gc.isenabled()), lambda: None)
    assert collected == [True, True, False]
    assert gc.isenabled()


# Other GPUs, and GPUs that fail

STICKY = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later"
FAILS = pytest.raises(
    LostDeviceError,
    match=r"^cuda:0 has failed, and this process cannot use it any more: CUDA error: an illegal memory access was "
    r"encountered; start again with --no-kernels, and if it fails again, run dynatui doctor$",
)
RUN = RunConfig(("linear", "ar"), 12, linear=Linear(2))


def in_a_thread(work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def fails(device: Device) -> None:
    """What a kernel does that reads where it may not: its call fails, and so does each later one."""
    device.fault = STICKY
    raise torch.AcceleratorError(STICKY)


def test_the_thread_that_sets_a_device_up_has_it_as_its_current_device() -> None:
    with fake_cuda(current=1):
        set_up(CUDA, torch.float32)
        assert torch.cuda.current_device() == CUDA.index
        in_a_thread(lambda: set_up(torch.device("cuda"), torch.float32))
        assert torch.cuda.current_device() == CUDA.index


def test_so_has_every_thread_that_decodes(engine: Engine) -> None:
    current: list[int] = []

    def work() -> None:
        events = decode(moved, PROMPT, RUN)
        current.extend(torch.cuda.current_device() for event in events if isinstance(event, Round))

    with fake_cuda(current=1):
        moved = on_fake_device(engine)
        in_a_thread(work)
        in_a_thread(work)
    assert len(current) > 4
    assert set(current) == {CUDA.index}


@pytest.mark.parametrize(("part", "kernel"), [("kernels", "pack_tree"), ("layer_kernels", "attention")])
def test_a_kernel_that_makes_the_device_unusable_ends_loading_in_one_sentence(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, part: str, kernel: str
) -> None:
    with fake_cuda() as device:
        for name in ("kernels", "layer_kernels"):
            monkeypatch.setattr(kernel_trial, name, dict)
        monkeypatch.setattr(kernel_trial, part, lambda: {kernel: lambda *_: fails(device)})
        with FAILS:
            self_test.prepare_rounds(on_fake_device(engine).pair, GraphSlots(kernels=True), [None, Linear(2)])


def test_so_does_a_pass_of_the_self_test(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda() as device:
        monkeypatch.setattr(self_test, "refusal", lambda *_: fails(device))
        with FAILS:
            self_test.prepare_rounds(on_fake_device(engine).pair, GraphSlots(), [None])


def test_a_round_that_makes_the_device_unusable_ends_this_run_and_each_later_one_in_one_sentence(
    engine: Engine,
) -> None:
    events: list[Event] = []
    with fake_cuda() as device:
        moved = on_fake_device(engine)
        with FAILS:
            for event in decode(moved, PROMPT, RUN):
                events.append(event)
                if sum(isinstance(each, Round) for each in events) == 3:
                    device.fault = STICKY
        with FAILS:
            next(iter(decode(moved, PROMPT, RUN)))
    assert isinstance(events[-1], End)
    assert events[-1].reason == "error"


# Whole rounds on the fake device


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
ALSO_OF_THE_DEVICE: Sequence[Work] = (
    lambda _: torch.zeros(3).to("cuda"),
    lambda _: torch.zeros(3),
    lambda _: torch.cuda.Event().record(),
    lambda _: torch.cuda.synchronize(),
)
MODES = pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])


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


# Records
