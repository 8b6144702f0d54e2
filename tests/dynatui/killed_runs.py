"""Runs of `benchmarks.gpu` that are killed at random, each with its own folder of files like a fresh machine.

The files of each run must satisfy the limits of a rented machine: few files, not large, with plain names.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from benchmarks import steps
from benchmarks.archive import NAME, STATUS, Result, latest_results
from benchmarks.steps import Step

PLAIN = re.compile(r"[A-Za-z0-9._-]+")


def marked(mark: str) -> list[tuple[int, bytes]]:
    """Processes with `mark` in their environment: process ids and command lines."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append((int(place.name), (place / "cmdline").read_bytes()))
        except OSError:  # the process has ended or belongs to another user
            continue
    return [(pid, command) for pid, command in found if command]


def program(home: Path, todo: Sequence[Step]) -> Path:
    """Writes a program that is `benchmarks.gpu` with the given steps."""
    path = home / "program.py"
    path.write_text(
        f"import sys; sys.path.insert(0, {str(steps.ROOT)!r})\n"
        "from benchmarks import gpu\nfrom benchmarks.steps import Step\n"
        f"sys.exit(gpu.main(sys.argv[1:], {list(todo)!r}))\n"
    )
    return path


class KilledRuns:
    """A series of runs, each of which continues from the results of the last one."""

    def __init__(self, home: Path, todo: Sequence[Step], luck: Random, options: Sequence[str] = ()) -> None:
        self.done: dict[str, Result] = {}
        """Results of the steps that are done; they never change again."""
        self.kills: Counter[str] = Counter()
        self._home, self._luck, self._run = home, luck, 0
        self._program = program(home, todo)
        self._mark = f"MARK={home}"
        self._options = options
        self._brought: Path | None = None

    def killed(self, within_s: float) -> None:
        """Kills a run at a random time, sometimes a step of it first, and checks that no process of it is left."""
        runner, output = self._started()
        if self._luck.random() < 0.5:
            time.sleep(self._luck.uniform(0, within_s))
            self._kill_a_step(runner)
        time.sleep(self._luck.uniform(0, within_s))
        if runner.poll() is None:
            runner.send_signal(signal.SIGKILL)
        runner.wait()
        self.kills["runner"] += 1
        self._back(output)

    def killed_in(self, name: str, now: Callable[[], bool]) -> None:
        """Kills a run during the step of this name, as soon as `now` returns True."""
        runner, output = self._started()
        until = time.monotonic() + 60
        while not (_begun(output) == name and self._of_steps() and now()):
            assert time.monotonic() < until
            assert runner.poll() is None
            time.sleep(0.02)
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        self.kills[name] += 1
        self._back(output)

    def to_the_end(self, most: int = 5) -> None:
        """Repeats runs without killing them until all steps are done, at most `most` times."""
        for _ in range(most):
            runner, output = self._started()
            code = runner.wait()
            self._back(output)
            if code == 0:
                return

    def _started(self) -> tuple["subprocess.Popen[bytes]", Path]:
        self._run += 1
        output = self._home / f"run-{self._run}"
        earlier = ["--earlier", str(self._brought)] if self._brought else []
        command = [sys.executable, str(self._program), "--output", str(output), *earlier, *self._options]
        with (self._home / "log.txt").open("ab") as log:
            log.write(f"--- run {self._run}\n".encode())
            log.flush()
            environment = os.environ | {"MARK": str(self._home)}
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log), output

    def _kill_a_step(self, runner: "subprocess.Popen[bytes]") -> None:
        """Kills a process of the current step, or of the next step if none runs at the moment."""
        while runner.poll() is None:
            if of_steps := self._of_steps():
                with suppress(ProcessLookupError):
                    os.kill(self._luck.choice(of_steps), signal.SIGKILL)
                    self.kills["step"] += 1
                    return
            time.sleep(0.01)

    def _of_steps(self) -> list[int]:
        """Process ids of the current step."""
        others = b"keeper.py", str(self._program).encode()
        return [pid for pid, command in marked(self._mark) if not any(other in command for other in others)]

    def _back(self, output: Path) -> None:
        """Waits until no process of the run is left, checks its files, and keeps its results."""
        until = time.monotonic() + 30
        while marked(self._mark):
            assert time.monotonic() < until, f"something of the run goes on: {marked(self._mark)}"
            time.sleep(0.05)
        files = [path for path in output.rglob("*") if path.is_file()]
        assert len(files) <= 8
        assert max((path.stat().st_size for path in files), default=0) < 2**24
        for path in files:
            parts = path.relative_to(output).parts
            assert len(parts) <= 2
            assert all(map(PLAIN.fullmatch, parts))
        if not (output / NAME).exists():  # the run was killed before its first step
            return
        results = latest_results([output / NAME])
        for name, result in self.done.items():
            assert results[name] == result, "what is done is not run again"
        self.done |= {name: each for name, each in results.items() if each.status.state == "done"}
        assert all(STATUS not in each.files for each in results.values())
        self._brought = self._brought_back(output)

    def _brought_back(self, output: Path) -> Path:
        """Moves the file of results to a new path; a new machine has no other files of the run."""
        kept = self._home / f"kept-{self._run}.tar.gz"
        (output / NAME).rename(kept)
        return kept


def _begun(output: Path) -> str:
    """Name of the latest step in the file of results; empty if there is no file."""
    if not (output / NAME).exists():
        return ""
    return next(reversed(latest_results([output / NAME])))
