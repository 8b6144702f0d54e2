"""Process in which stages run, one after another, with what they share: loaded models, sizes and the journal.

A stage that fails is recorded, and the next one begins; if it has left the device unusable, the process ends.
"""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from benchmarks.stages.journal import Journal
from benchmarks.stages.plan import DRY, REAL, Setting, Stage

if TYPE_CHECKING:
    from decoder.engine import Engine

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1
LOST = 3
"""Exit code of a process whose device has failed."""


@dataclass(frozen=True)
class Order:
    stages: Sequence[Stage]
    journal: Journal
    kernels: bool
    """Whether Triton kernels are tried."""
    end_s: float
    """Time of the session at which the worker is killed."""


@dataclass
class Work:
    stage: str
    journal: Journal
    setting: Setting
    kernels: bool
    """Whether Triton kernels are tried."""
    held: dict[Hashable, "Engine"] = field(default_factory=dict)
    """The engine that was loaded last, by its key."""

    def note(self, text: str, **figures: Any) -> None:
        """Writes what was found into the journal: in words, with the figures behind it."""
        import msgspec  # noqa: PLC0415 - may be absent, and not all stages need it

        self.journal.write(self.stage, text, **msgspec.to_builtins(figures, str_keys=True))

    def report(self, line: str) -> None:
        self.journal.write(self.stage, line)

    def append(self, name: str, text: str) -> None:
        with self.journal.path.with_name(name).open("a", encoding="utf-8") as file:
            file.write(text)

    def engine(self, key: Hashable, load: Callable[[], "Engine"]) -> "Engine":
        """The engine of this key; if another one was loaded last, that one is freed first."""
        if key not in self.held:
            self.free()
            self.held[key] = load()
        return self.held[key]

    def free(self) -> None:
        from decoder.system.device import release_memory  # noqa: PLC0415 - imports torch

        devices = [engine.pair.target.device for engine in self.held.values()]
        self.held.clear()
        for device in devices:
            release_memory(device)


def start(journal: Journal, stages: Sequence[Stage], kernels: bool, end_s: float) -> "subprocess.Popen[bytes]":  # noqa: FBT001 - see `supervisor.Start`
    """Starts a worker, in a process group of its own; its output goes into log.txt beside the journal."""
    order = Order(stages, replace(journal, path=journal.path.resolve()), kernels, end_s)
    own = {"DYNATUI_CONFIG": os.devnull, "PYTHONUNBUFFERED": "1"} | ({"OMP_NUM_THREADS": "1"} if journal.dry else {})
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    program = (DRY if journal.dry else REAL).program
    command = [sys.executable, *program, "-m", "benchmarks.stages.worker", pickle.dumps(order).hex()]
    with journal.path.with_name("log.txt").open("ab") as log:
        output: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        environment = os.environ | own | {"PYTHONPATH": paths}
        return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **output)  # noqa: S603


def run_stages(order: Order) -> int:
    """Runs stages for which time is left; returns `LOST` if the device has failed, else 0."""
    journal = order.journal
    work = Work("", journal, DRY if journal.dry else REAL, order.kernels)
    for stage in order.stages:
        work.stage, left_s = stage.name, order.end_s - journal.now_s()
        if left_s < stage.least_s:
            work.report(f"left out: {left_s:.0f} s are left, and it needs {stage.least_s:.0f}")
            continue
        journal.write(stage.name, stage.about, state="began", kernels=order.kernels)
        try:
            resolve_name(stage.work)(work)
        except Exception as error:  # noqa: BLE001 - the other stages are run whatever happens in one
            traceback.print_exc()
            text = f"{type(error).__name__}: {str(error).strip()[:2000]}"
            if not _device_works():
                work.report(f"the device has failed: {text}")
                return LOST
            journal.write(stage.name, text, state="failed")
        else:
            journal.write(stage.name, state="done")
    return 0


def _device_works() -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _end_with_parent() -> None:
    """Has the system kill this process when the supervisor ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _end_with_parent()
    sys.exit(run_stages(pickle.loads(bytes.fromhex(sys.argv[1]))))  # noqa: S301 - from `start`
