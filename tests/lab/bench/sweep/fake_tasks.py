"""Tasks of workers without models, in a module that worker processes can import."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from decoder.errors import ConfigError
from dynatui.lab.bench.database import understood
from dynatui.lab.bench.sweep.processes import Joined, Task, working
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Setting
from dynatui.lab.bench.sweep.trials import mixed
from dynatui.lab.bench.sweep.worker import Measure
from tests.lab.bench.sweep.sweeps import fake_result, request, sqlite_in


@dataclass(frozen=True)
class FakeReady:
    measure: Measure
    request: SweepRequest = field(default_factory=request)
    machine: dict[str, object] = field(default_factory=dict)


def task(folder: Path, measure: Measure = fake_result) -> Task:
    return Task(partial(prepared, measure), understood(sqlite_in(folder)), heartbeat_s=1, grace_s=100)


def prepared(measure: Measure, note: Callable[[str], None]) -> FakeReady:
    note("loading nothing")
    return FakeReady(measure)


def unprepared(_note: Callable[[str], None]) -> FakeReady:
    raise ConfigError("the draft does not fit")


def slow(setting: Setting) -> Any:
    time.sleep(0.2)
    return fake_result(setting)


def after(file: Path, setting: Setting) -> Any:
    """The result, as soon as the file exists."""
    while not file.exists():
        time.sleep(0.01)
    return fake_result(setting)


def killed(_setting: Setting) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def first_is_killed(setting: Setting) -> Any:
    """Kills the worker of the first setting after another worker has started to measure."""
    time.sleep(2)
    if setting == mixed(request())[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def main(folder: str) -> None:
    """A program that starts a worker."""
    for said in working(task(Path(folder), slow), 1, 0.1):
        if isinstance(said, Joined):
            sys.stdout.write(f"{said}\n")
            sys.stdout.flush()
