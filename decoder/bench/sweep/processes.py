"""Workers as processes of their own, so that whoever shows their progress takes no time from what they measure.

They end with the process that started them, whatever ends it. Knows neither models nor screens.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol, TypeAlias

from decoder.bench.database import Database
from decoder.bench.sweep.request import Request
from decoder.bench.sweep.trials import GRACE_S, HEARTBEAT_S, joined, make, noted, worker_name
from decoder.bench.sweep.worker import Measure, work
from decoder.errors import DecoderError, ModelError

END_S = 3
"""How long workers may take to end when they are asked to."""


class ReadyWorker(Protocol):
    """A worker with its models loaded."""

    @property
    def request(self) -> Request:
        """What is swept."""

    @property
    def machine(self) -> dict[str, object]:
        """What it measures on."""

    @property
    def measure(self) -> Measure:
        """Measures a setting."""


@dataclass(frozen=True)
class Task:
    """What every worker does; it is sent to other processes."""

    prepare: Callable[[Callable[[str], None]], ReadyWorker]
    """(note) -> what is ready."""
    storage: Database
    study: str | None = None
    """None: named by what is asked."""
    heartbeat_s: float = HEARTBEAT_S
    grace_s: float = GRACE_S


@dataclass(frozen=True)
class Joined:
    """A worker has begun with the settings of this study."""

    study: str
    worker: str
    """By what name it takes settings."""


Said: TypeAlias = str | Joined | None
"""A note, the study, or nothing for a while."""


def working(task: Task, workers: int, every_s: float) -> Generator[Said, None, None]:
    """What workers say, and None every now and then, until all have ended; kills them when it is closed.

    Raises:
        DecoderError: One of them failed; the others then leave too.
    """
    context = multiprocessing.get_context("spawn")
    pipes: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(workers):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_worker, args=(task, theirs), daemon=True)
            process.start()
            theirs.close()
            pipes[mine] = process
        running = dict(pipes)
        while running:
            for pipe in wait(list(running), every_s):
                assert isinstance(pipe, Connection)  # noqa: S101 - nothing else is waited for
                try:
                    said = _heard(pipe)
                except EOFError:
                    _require_success(running.pop(pipe))
                else:
                    yield said
            yield None
    finally:
        _end(list(pipes.values()))


def _heard(pipe: Connection) -> Said:
    said: Said | DecoderError = pipe.recv()
    if isinstance(said, DecoderError):
        raise said
    return said


def _require_success(process: SpawnProcess) -> None:
    process.join()
    if process.exitcode:
        how = f"was ended by signal {-process.exitcode}" if process.exitcode < 0 else "failed"
        raise ModelError(
            f"a worker {how}; what was measured is kept: run the same command again, with fewer --workers if memory "
            "was short"
        )


def _end(processes: list[SpawnProcess]) -> None:
    """Asks for the end, so that settings are given back, and does not wait long for it."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + END_S
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        process.kill()
    for process in processes:
        process.join()


def _worker(task: Task, pipe: Connection) -> None:
    """What runs in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a whole terminal; the parent ends its workers itself
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        make(task.storage)  # before models are loaded, which takes long
        ready = task.prepare(pipe.send)
        sweep = joined(task.storage, ready.request, task.study, task.heartbeat_s, task.grace_s)
        noted(sweep, ready.machine)
        pipe.send(Joined(sweep.study, worker_name()))
        work(sweep, ready.measure)
    except DecoderError as error:
        pipe.send(error)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends by itself from here on


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
