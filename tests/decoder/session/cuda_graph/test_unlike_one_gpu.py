"""What machines have that a single sound GPU has not: a second GPU, a GPU that failed, TF32, the collector's timing."""

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder import RunConfig, decode
from decoder.engine import Engine
from decoder.errors import LostDeviceError
from decoder.events import End, Event, Round
from decoder.methods.linear import Linear
from decoder.session.cuda_graph import kernel_trial, self_test
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.system.device import Graphs, require_working, set_up
from tests.decoder.makers import PROMPT, TinyModels
from tests.decoder.session.cuda_graph.on_gpu import on_gpu
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.fake_cuda.tensors import CUDA, CudaError, Device

STICKY = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later"
SENTENCE = (
    r"^cuda:0 has failed, and this process cannot use it any more: CUDA error: an illegal memory access was "
    r"encountered; start again with --no-kernels, and if it fails again, run dynatui doctor$"
)
RUN = RunConfig(("linear", "ar"), 12, linear=Linear(2))


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.engine("neox")


def in_a_thread(work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def fails(device: Device) -> None:
    """What a kernel does that reads where it may not: its call fails, and so does each later one."""
    device.fault = STICKY
    raise torch.AcceleratorError(STICKY)


def failing(events: Iterator[Event], device: Device) -> Iterator[Event]:
    """The events of a run whose device becomes unusable after the third round."""
    rounds = 0
    for event in events:
        rounds += isinstance(event, Round)
        if rounds == 3:
            device.fault = STICKY
        yield event


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


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_triton_launches_on_the_current_device_alone() -> None:
    import triton  # noqa: PLC0415 - only where it is installed

    @triton.jit  # type: ignore[untyped-decorator]  # untyped in Triton
    def kernel(numbers: Any) -> None:
        pass

    with fake_cuda(values=False, current=1):
        numbers = torch.zeros(3, device="cuda")
        with pytest.raises(CudaError, match="launched on cuda:1"):
            kernel[(1,)](numbers)
        set_up(CUDA, torch.float32)
        kernel[(1,)](numbers)


@pytest.mark.parametrize("part", ["kernels", "layer_kernels"])
def test_a_kernel_that_makes_the_device_unusable_ends_loading_in_one_sentence(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with fake_cuda() as device:
        pair = on_fake_device(engine).pair
        of_parts = {"kernels": "pack_tree", "layer_kernels": "attention"}
        for name in of_parts:
            monkeypatch.setattr(kernel_trial, name, dict)
        monkeypatch.setattr(kernel_trial, part, lambda: {of_parts[part]: lambda *_: fails(device)})
        with pytest.raises(LostDeviceError, match=SENTENCE):
            self_test.prepare_rounds(pair, GraphSlots(kernels=True), [None, Linear(2)])


def test_so_does_a_pass_of_the_self_test(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda() as device:
        pair = on_fake_device(engine).pair
        monkeypatch.setattr(self_test, "refusal", lambda *_: fails(device))
        with pytest.raises(LostDeviceError, match=SENTENCE):
            self_test.prepare_rounds(pair, GraphSlots(), [None])


def test_a_round_that_makes_the_device_unusable_ends_this_run_and_each_later_one_in_one_sentence(
    engine: Engine,
) -> None:
    events: list[Event] = []
    with fake_cuda() as device:
        moved = on_fake_device(engine)
        with pytest.raises(LostDeviceError, match=SENTENCE):
            events.extend(failing(decode(moved, PROMPT, RUN), device))
        with pytest.raises(LostDeviceError, match=SENTENCE):
            next(iter(decode(moved, PROMPT, RUN)))
    assert isinstance(events[-1], End)
    assert events[-1].reason == "error"


def test_engines_of_gpu_tests_are_loaded_without_a_trial_of_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[object] = []
    monkeypatch.setattr(self_test, "chosen_operators", lambda *given: tried.append(given))
    with fake_cuda():
        assert on_gpu(TinyModels(tmp_path), "neox", "float32").pair.target.device.type == "cuda"
    assert not tried


def test_a_device_that_works_is_not_refused() -> None:
    with fake_cuda():
        require_working(CUDA)
    require_working(torch.device("cpu"))


def test_nothing_is_collected_within_a_capture() -> None:
    collected: list[bool] = []
    with fake_cuda():
        Graphs(CUDA).capture(lambda: collected.append(gc.isenabled()), lambda: None)
    assert collected == [True, True, False]
    assert gc.isenabled()
