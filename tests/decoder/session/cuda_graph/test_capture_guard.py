"""How work is tried and captured, mistakes of rounds that plain calls do not reveal and records do, and what machines
have that a single sound GPU has not: a second GPU, a GPU that failed, the collector's timing.
"""

import ctypes
import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig, decode
from decoder.engine import Engine
from decoder.errors import LostDeviceError
from decoder.events import End, Event, Round
from decoder.methods.linear import Linear
from decoder.session.cuda_graph import kernel_trial, self_test, verify
from decoder.session.cuda_graph.capture_guard import NotCapturableError
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftPart
from decoder.session.cuda_graph.slots import GraphSlots, tried
from decoder.system.device import WARM_UPS, Graphs, Mark, set_up
from tests.decoder.makers import PROMPT, TinyModels
from tests.decoder.session.cuda_graph.matching import match, recorded, with_slots
from tests.decoder.session.cuda_graph.on_gpu import on_gpu
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.fake_cuda.tensors import CUDA, Device

CPU = torch.device("cpu")


# Mistakes that plain calls do not reveal


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.engine("neox", "float64")


@pytest.mark.parametrize(
    ("start_of", "error"),
    [
        (lambda start: ctypes.c_int64.from_address(start.data_ptr()).value, AssertionError),
        (lambda start: start.item(), NotCapturableError),
    ],
    ids=["the host put in, and is stale in the next round", "is read back"],
)
def test_a_number_is_noticed_that(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, start_of: Callable[[Tensor], float], error: type[Exception]
) -> None:
    """The verification's mask is patched: its first visible position comes from `start_of`."""
    right = verify.tree_bias

    def seen(side: DraftPart, columns: Tensor, own: Tensor, above: Tensor) -> Tensor:
        return right(side, columns, torch.full_like(own, start_of(own[0])), above)

    monkeypatch.setattr(verify, "tree_bias", seen)
    match(with_slots(engine), [1, 2, 3, 4], 12, None)
    with pytest.raises(error):
        match(recorded(engine), [1, 2, 3, 4], 12, None)


def test_a_tensor_that_another_takes_the_place_of_is_noticed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    right = DeviceState.begin

    def elsewhere(state: DeviceState, *text: Any) -> None:
        state.text = torch.zeros_like(state.text)
        right(state, *text)

    monkeypatch.setattr(DeviceState, "begin", elsewhere)
    by_calls, by_records = with_slots(engine), recorded(engine)
    for pair in (by_calls, by_calls, by_records):
        match(pair, [1, 2, 3], 12, None)
    with pytest.raises(NotCapturableError, match="freed"):
        match(by_records, [1, 2, 3], 12, None)


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


def test_engines_of_gpu_tests_are_loaded_without_a_trial_of_kernels(
    engine: Engine, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, pair = list[dict[str, Any]](), tiny_models.pair("neox")

    def load(*_: str, **how: Any) -> Engine:
        asked.append(how)
        return engine

    monkeypatch.setattr("tests.decoder.session.cuda_graph.on_gpu.load_pair", load)
    monkeypatch.setattr(tiny_models, "pair", lambda _: pair)
    monkeypatch.setattr(tiny_models, "_once", lambda _, make: make())
    on_gpu(tiny_models, "neox", "float32")
    assert [how["kernels"] for how in asked] == [False]
