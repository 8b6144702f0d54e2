"""Runs measurement steps one after another, each in a process of its own with a time limit.

After each step all results so far are written to the archive `archive.NAME`; the folder `RUNNING` contains the files
of the running step, including its output so far.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from benchmarks.archive import OUTPUT, Result, Results, State, Status, files_in, keep
from decoder.system.whole_files import made_folder

ROOT = Path(__file__).parents[1]
KEEPER = Path(__file__).with_name("keeper.py")
RUNNING = "running"
FOLDER = "{folder}"
"""Placeholder in a command for the folder in which the step writes its files."""
GRACE_S = 20.0
"""A step is interrupted this many seconds before its limit, so that it can report its measurements so far."""
RESERVE_S = 15.0
"""Part of the total time, in seconds, that is reserved for killing a step that hangs and for writing the archive."""
Say = Callable[[str], object]


@dataclass(frozen=True)
class Step:
    """One measurement or test run."""

    name: str
    about: str
    command: tuple[str, ...]
    """Command-line arguments for the Python interpreter."""
    limit_s: float
    environment: Mapping[str, str] = field(default_factory=dict)


def status(step: Step, results: Results) -> Status | None:
    """Status of a step's last run; None if it never ran with this command and environment."""
    last_status = results[step.name].status if step.name in results else None
    return (
        last_status
        if last_status and (last_status.command, last_status.environment) == (step.command, step.environment)
        else None
    )


def pending(steps: Sequence[Step], results: Results) -> list[Step]:
    """Steps that are not done: first those that never ran, then those that failed, timed out or were stopped."""
    statuses = [(step, status(step, results)) for step in steps]
    never = [step for step, ended in statuses if ended is None]
    return [*never, *(step for step, ended in statuses if ended is not None and ended.state != "done")]


def listing(steps: Sequence[Step], results: Results) -> str:
    """Table of the steps, one line each, with state, time and limit."""
    statuses = [(step, status(step, results)) for step in steps]
    states = [(step, ended.state if ended else "not run", ended.seconds if ended else 0) for step, ended in statuses]
    width = max((len(step.name) for step in steps), default=0)
    return "\n".join(
        f"{step.name:<{width}} {state:<10} {seconds:>4.0f} of {step.limit_s:>3.0f} s  {step.about}"
        for step, state, seconds in states
    )


def run_all(
    steps: Sequence[Step],
    output: Path,
    results: Results,
    minutes: float,
    say: Say,
    clock: Callable[[], float] = time.monotonic,
) -> Results:
    """Runs steps in order; skips a step if its time limit exceeds the remaining time.

    Raises:
        ConfigError: The archive cannot be written.
    """
    ends, left = clock() + 60 * minutes - RESERVE_S, list(steps)
    while fitting := [step for step in left if clock() + step.limit_s <= ends]:
        left.remove(fitting[0])
        results = run(fitting[0], output, results, say)
    if left:
        say(f"no time is left for {', '.join(step.name for step in left)}; run the same command again")
    return results


def run(step: Step, output: Path, results: Results, say: Say) -> Results:
    """Runs a step and writes its result to the archive, together with all earlier results."""
    work = output / RUNNING
    shutil.rmtree(work, ignore_errors=True)
    made_folder(work)
    say(f"{step.name}: {step.about}, at most {step.limit_s:.0f} s")
    began_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # The status "stopped" is written before the run. If the step crashes the machine, the next run of this program
    # finds this status and tries other steps first.
    begun = Status("stopped", None, 0.0, began_at, step.command, step.environment)
    results = {**results, step.name: Result(begun, {})}
    keep(results, output)
    state, code, seconds = _ended(step, work)
    files, left_out = files_in(work)
    final_status = replace(begun, state=state, exit_code=code, seconds=round(seconds, 1), left_out=left_out)
    results = {**results, step.name: Result(final_status, files)}
    keep(results, output)
    shutil.rmtree(work, ignore_errors=True)
    exit_text = "" if code is None else f", exit code {code}"
    last = "" if state == "done" else f": {_last_line(files[OUTPUT])}"
    say(f"{step.name}: {state} after {seconds:.0f} s{exit_text}{last}")
    return results


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "the step printed nothing")


def _ended(step: Step, work: Path) -> tuple[State, int | None, float]:
    """State in which a step ended, its exit code, and the seconds that it took."""
    command = [argument.replace(FOLDER, str(work.resolve())) for argument in step.command]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    variables = {"DYNATUI_CONFIG": os.devnull, "PYTHONUNBUFFERED": "1", "PYTHONPATH": paths, **step.environment}
    began = time.monotonic()
    with (work / OUTPUT).open("wb") as output_file:
        report = _keeper_report([sys.executable, *command], step.limit_s, os.environ | variables, output_file)
    code, in_time = report.get("exit_code"), report.get("in_time", True)
    state: State = "done" if code == 0 and in_time else "failed" if in_time else "timed out"
    return state, code, time.monotonic() - began


def _keeper_report(
    command: Sequence[str], limit_s: float, environment: Mapping[str, str], output_file: IO[bytes]
) -> Mapping[str, Any]:
    """The keeper's report of how a command ended; empty if the keeper itself was killed."""
    limits = f"{limit_s}", f"{min(GRACE_S, limit_s / 4)}"
    with subprocess.Popen(  # noqa: S603 - the command of a step in this repository
        [sys.executable, "-I", "-S", str(KEEPER), *limits, *command],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output_file,
        start_new_session=True,
    ) as keeper:
        assert keeper.stdout  # noqa: S101 - it is a pipe
        lines = keeper.stdout.read().splitlines()
    if len(lines) == 1:
        with suppress(ProcessLookupError):
            os.killpg(int(lines[0]), signal.SIGKILL)
    return json.loads(lines[1]) if len(lines) > 1 else {}
