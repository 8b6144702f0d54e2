"""Stages whose ends are known: what the supervisor and the worker do with each kind of end is tested with them."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

from benchmarks.stages.plan import Stage
from benchmarks.stages.worker import Work


def stage(name: str, work: str, limit_s: float = 60.0, least_s: float = 0.0, packages: tuple[str, ...] = ()) -> Stage:
    """Stage that calls a function of this module."""
    return Stage(name, f"test stage {name}", f"{__name__}:{work}", limit_s, least_s, packages)


def works(work: Work) -> None:
    """Finds a number, and whether kernels are tried."""
    work.note("the answer", answer=42, kernels_tried=work.kernels, process=os.getpid())


def fails(_: Work) -> None:
    raise ValueError("a mistake")


def crashes(work: Work) -> None:
    if work.kernels:
        os.kill(os.getpid(), signal.SIGSEGV)
    works(work)


def always_crashes(_: Work) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def loses_the_device(work: Work) -> None:
    """Leaves the device unusable, unless kernels are off."""

    def unusable() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    if work.kernels:
        # In place of torch, whose import would take most of the test's time.
        cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=unusable)
        sys.modules["torch"] = SimpleNamespace(cuda=cuda)  # type: ignore[assignment]
        unusable()
    works(work)


def hangs(work: Work) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    work.note("started", child=child.pid, process=os.getpid())
    time.sleep(600)


def is_cut_off(work: Work) -> None:
    """Ends its process while it writes a line, unless kernels are off."""
    if work.kernels:
        with work.journal.path.open("a") as file:
            file.write('{"stage": "cut", "at_')
        os.kill(os.getpid(), signal.SIGKILL)
    works(work)
