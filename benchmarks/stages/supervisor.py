"""Runs stages in worker processes: one process for all of them, and a new one after a stage that has died.

A stage may crash its process or hang: after an illegal memory access, for example, every later CUDA call of the process
fails. The new process works without Triton kernels, the likeliest cause, and repeats the stage that died first; a stage
that timed out is repeated after all others. No stage is tried more than twice.
"""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from benchmarks.stages.journal import Journal, Line
from benchmarks.stages.plan import Stage

ATTEMPTS = 2
POLL_S = 0.2
Start = Callable[[Sequence[Stage], bool, float], "subprocess.Popen[bytes]"]
"""(stages, whether Triton kernels are tried, time of the session at which the worker is killed) -> the worker, in a
process group of its own.
"""
Show = Callable[[Line], object]
ENDED = ("done", "failed")


def supervise(stages: Sequence[Stage], journal: Journal, end_s: float, start: Start, show: Show) -> None:
    """Runs the stages in order until `end_s`, a time of the session; `show` gets each new line of the journal."""
    todo, kernels, attempts = list(stages), True, Counter[Stage]()
    while todo and journal.now_s() < end_s:
        before = len([*journal.lines()])
        state = _watched(start(todo, kernels, end_s), {stage.name: stage for stage in todo}, journal, end_s, show)
        ended = {line["stage"] for line in [*journal.lines()][before:] if line.get("state") in ENDED}
        todo = [stage for stage in todo if stage.name not in ended]
        if state is None or not todo:
            return
        running = journal.running()
        dead = next((stage for stage in todo if running and stage.name == running[0]), todo[0])
        journal.write(dead.name, "the end of log.txt says more", state=state)
        show([*journal.lines()][-1])
        kernels = False
        attempts[dead] += 1
        todo.remove(dead)
        if attempts[dead] < ATTEMPTS:
            todo.insert(0 if state == "died" else len(todo), dead)


def _watched(
    worker: "subprocess.Popen[bytes]", stages: Mapping[str, Stage], journal: Journal, end_s: float, show: Show
) -> Literal["died", "timed out"] | None:
    """Waits for a worker, and kills it at its stage's time limit; returns None if it has ended by itself with 0."""
    shown, late = len([*journal.lines()]), False
    try:
        while worker.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(POLL_S)
            for line in [*journal.lines()][shown:]:
                show(line)
                shown += 1
            running = journal.running()
            limit_s = min(end_s, running[1] + stages[running[0]].limit_s) if running else end_s
            if worker.returncode is None and journal.now_s() >= limit_s:
                late = True
                break
    finally:
        _kill(worker)
        journal.repair()
    return "timed out" if late else "died" if worker.returncode else None


def _kill(worker: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
