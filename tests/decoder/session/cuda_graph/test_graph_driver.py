"""Calls of torch's CUDA graph API, checked by a stand-in that accepts only the arguments of torch's own functions."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from decoder.system.device import WARM_UPS, Graphs, Mark


class Driver:
    """Records the calls and the stream of each call."""

    def __init__(self, patch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
        self.log: list[str] = []
        self.current = "the thread's stream"
        self.pools: list[object] = []
        self.modes: list[tuple[bool, bool]] = []
        """(inference mode, gradients enabled) at the begin of each capture."""
        self._fails = fails
        signature = inspect.signature(torch.cuda.graph)
        for name, stands_in in {
            "device": lambda _: nullcontext(),
            "stream": self._on,
            "current_stream": lambda *_: self,
            "Stream": lambda: Stream(self),
            "CUDAGraph": lambda: self,
            "graph_pool_handle": lambda: "a pool",
            "graph": lambda *args, **kwargs: self._capturing(**signature.bind(*args, **kwargs).arguments),
        }.items():
            patch.setattr(torch.cuda, name, stands_in)

    def note(self, what: str) -> None:
        self.log.append(f"{what} on {self.current}")

    def wait_stream(self, stream: object) -> None:
        self.note(f"wait for {stream}")

    def replay(self) -> None:
        self.note("replay")

    @contextmanager
    def _on(self, where: object) -> Iterator[None]:
        before = self.current
        if isinstance(where, Stream):
            self.current = str(where)
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def _capturing(self, cuda_graph: object, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
        assert (cuda_graph, capture_error_mode) == (self, "thread_local")
        self.modes.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        self.pools.append(pool)
        self.current = str(stream)
        self.note("begin")
        yield
        self.note("end")
        if self._fails:
            # Like torch's own, it raises before the stream is restored.
            raise RuntimeError("the capture is invalid")
        self.current = "the thread's stream"


class Stream:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def wait_stream(self, _: object) -> None:
        self._driver.note("the side stream waits")

    def __str__(self) -> str:
        return "the side stream"


def captured(driver: Driver) -> tuple[Graphs, Callable[[], None]]:
    graphs = Graphs(torch.device("cuda"))
    return graphs, graphs.capture(lambda: driver.note("work"), lambda: driver.note("undo"))


def test_work_is_tried_on_the_stream_on_which_it_is_captured_and_undone_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(monkeypatch)
    _, repeated = captured(driver)
    assert driver.log == [
        "the side stream waits on the thread's stream",
        *["work on the side stream", "undo on the side stream"] * WARM_UPS,
        "wait for the side stream on the thread's stream",
        "begin on the side stream",
        "work on the side stream",
        "end on the side stream",
    ]
    repeated()
    assert driver.log[-1] == "replay on the thread's stream"


def test_all_captures_share_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    graphs, _ = captured(driver)
    graphs.capture(lambda: None, lambda: None)
    assert driver.pools == ["a pool", "a pool"]


def test_a_capture_begins_outside_of_inference_mode_whoever_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch before 2.11 reuses tensors of the first capture, so later captures fail if these are inference tensors."""
    driver = Driver(monkeypatch)
    captured(driver)
    with torch.inference_mode():
        captured(driver)
    assert driver.modes == [(False, False)] * 2


def test_a_capture_that_fails_leaves_the_thread_on_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, fails=True)
    with pytest.raises(RuntimeError, match="invalid"):
        captured(driver)
    assert driver.current == "the thread's stream"


def test_a_mark_records_an_event_on_the_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            asked.append(enable_timing)

        def record(self, stream: object) -> None:
            asked.append(stream)

        def synchronize(self) -> None:
            asked.append("waited")

        def elapsed_time(self, later: object) -> float:
            assert later is not self
            return 2000.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    first, second = (Mark(torch.device("cuda:1")) for _ in range(2))
    second.wait()
    assert asked == [True, "stream of cuda:1"] * 2 + ["waited"]
    assert second.seconds_since(first) == 2.0
