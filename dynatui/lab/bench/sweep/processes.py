"""Worker processes of a sweep. The progress display is in another process, so that it does not slow measurements down.

Workers end when the process that started them ends, even if that process is killed. This module does not depend on
models or on the display.
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

from decoder.errors import DecoderError, ModelError
from dynatui.lab.bench.database import Database
from dynatui.lab.bench.on_pair import Note
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.trials import GRACE_S, HEARTBEAT_S, joined, make, noted, worker_name
from dynatui.lab.bench.sweep.worker import Measure, work

END_S = 3
"""Seconds between SIGTERM and SIGKILL when workers are ended."""


class ReadyWorker(Protocol):
    """Request, machine and measuring function of a worker, made after the worker has loaded the models."""

    @property
    def request(self) -> SweepRequest:
        """Request of the sweep that the worker measures."""

    @property
    def machine(self) -> dict[str, object]:
        """Description of the machine on which the worker runs."""

    @property
    def measure(self) -> Measure:
        """Function that measures one setting."""


@dataclass(frozen=True)
class Task:
    """Arguments of every worker; they are sent to the worker's process."""

    prepare: Callable[[Note], ReadyWorker]
    """Function that loads the models, given a receiver of progress lines."""
    storage: Database
    study: str | None = None
    """Name of the study in the database; if None, it is derived from the request."""
    heartbeat_s: float = HEARTBEAT_S
    grace_s: float = GRACE_S


@dataclass(frozen=True)
class Joined:
    """Message sent by a worker once it is ready and has joined a study."""

    study: str
    worker: str
    """Name under which the worker claims settings."""


Message: TypeAlias = str | Joined | None
"""Progress line of a worker, notice that a worker joined, or None; at None, the reader can refresh its display."""


def working(task: Task, workers: int, every_s: float) -> Generator[Message, None, None]:
    """Yields messages of workers until all workers have ended, and None at least every `every_s` seconds.

    Closing the generator ends the workers.

    Raises:
        DecoderError: A worker failed; the other workers are then ended.
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
                    message = _received(pipe)
                except EOFError:
                    _require_success(running.pop(pipe))
                else:
                    yield message
            yield None
    finally:
        _end(list(pipes.values()))


def _received(pipe: Connection) -> Message:
    message: Message | DecoderError = pipe.recv()
    if isinstance(message, DecoderError):
        raise message
    return message


def _require_success(process: SpawnProcess) -> None:
    process.join()
    if process.exitcode:
        how = f"was ended by signal {-process.exitcode}" if process.exitcode < 0 else "failed"
        raise ModelError(
            f"a worker {how}; finished settings are kept: run the same command again, with fewer --workers if memory "
            "was short"
        )


def _end(processes: list[SpawnProcess]) -> None:
    """Sends SIGTERM, at which workers return their claims; kills the workers that still run after `END_S` seconds."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + END_S
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        process.kill()
    for process in processes:
        process.join()


def _worker(task: Task, pipe: Connection) -> None:
    """Main function of a worker process."""
    # a terminal sends SIGINT to all processes of a command; workers ignore it, since the parent process ends them
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        make(task.storage)  # a database error must appear before the slow loading of models
        ready = task.prepare(pipe.send)
        sweep = joined(task.storage, ready.request, task.study, task.heartbeat_s, task.grace_s)
        noted(sweep, ready.machine)
        pipe.send(Joined(sweep.study, worker_name()))
        work(sweep, ready.measure)
    except DecoderError as error:
        pipe.send(error)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SIGTERM must not interrupt the end of the process


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
