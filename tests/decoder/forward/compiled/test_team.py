"""A thread that helps with passes leaves the CPU on which the caller computes."""

import ctypes
import os
import sys
import threading
import time
from typing import Any

import pytest

from decoder.forward.compiled import model as team
from decoder.forward.compiled.library import Pass, library
from decoder.forward.compiled.model import Helper, leave_cpu

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a thread choose its CPUs")


def in_a_thread(work: list[set[int]], cpu: int) -> None:
    def run() -> None:
        leave_cpu(cpu)
        work.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@on_linux
def test_a_thread_leaves_a_cpu_for_the_others_of_the_process() -> None:
    allowed, found = os.sched_getaffinity(os.getpid()), list[set[int]]()
    cpu = min(allowed)
    in_a_thread(found, cpu)
    assert found == [allowed - {cpu} or allowed]


@on_linux
def test_a_process_with_one_cpu_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    cpu = min(allowed)
    with monkeypatch.context() as patched:
        patched.setattr(os, "sched_getaffinity", lambda _: {cpu})
        leave_cpu(cpu)
    assert os.sched_getaffinity(0) == allowed


class Functions:
    """Functions of the library in a helper that runs on CPU `cpu`."""

    def __init__(self, cpu: int) -> None:
        self.dynatui_cpu = lambda: cpu
        self.helped = threading.Event()

    def dynatui_help(self, _address: int, _number: int) -> None:
        self.helped.set()


@pytest.mark.parametrize(
    ("cpu", "caller", "left"), [(3, 3, [3]), (3, 2, []), (-1, -1, [])], ids=["same", "another", "unknown"]
)
def test_a_helper_leaves_the_callers_cpu_before_it_helps(
    monkeypatch: pytest.MonkeyPatch, cpu: int, caller: int, left: list[int]
) -> None:
    moved: list[int] = []
    monkeypatch.setattr(team, "leave_cpu", moved.append)
    functions: Any = Functions(cpu)
    helper = Helper(functions, 1)
    helper.start()
    limit = time.monotonic() + 10
    while not helper.asleep and time.monotonic() < limit:
        time.sleep(0.001)
    helper.wake(Pass(), caller)
    assert functions.helped.wait(10)
    assert moved == left


@on_linux
def test_the_library_knows_the_cpu_of_a_thread() -> None:
    found = library()
    if not found:
        pytest.skip("there is no library for this CPU")
    assert isinstance(found.functions, ctypes.CDLL)
    assert found.functions.dynatui_cpu() in os.sched_getaffinity(0)
