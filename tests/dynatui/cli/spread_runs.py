"""Runs of the program over several processes: each is watched until its end, and none outlives its test."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from decoder.methods import METHODS
from dynatui.cli import main as cli
from tests.dynatui.pty_terminal import ROOT
from tests.tiny import TinyPair

SPREAD = ",".join(name for name, method in METHODS.items() if not method.whole_target)
FLOAT32 = ("--device", "cpu", "--dtype", "float32")
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Ended:
    """What came of a run."""

    code: int
    printed: str
    errors: str


def environment() -> dict[str, str]:
    """A thread a process."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}


def models(pair: TinyPair | None) -> list[str]:
    """Of a tiny pair, or of the embedded one."""
    return [*FLOAT32, *(("--target", str(pair.target), "--draft", str(pair.draft)) if pair else ())]


def ended_run(command: Sequence[str], cwd: Path) -> Ended:
    """Python with these arguments, run to its end; followers are gone when the one that started them is."""
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment(),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=_PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return Ended(process.returncode, printed.decode(), errors.decode())


def decoded(command: Sequence[str], cwd: Path) -> dict[str, Any]:
    """What a run without a screen prints as JSON, and nothing else."""
    done = ended_run([*command, "--json"], cwd)
    assert done.code == 0, done.errors
    found: dict[str, Any] = json.loads(done.printed)
    return found


def decoded_here(asked: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The same of a run in this process."""
    assert cli.main([*asked, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def tokens(found: dict[str, Any]) -> dict[str, list[int]]:
    """By method."""
    return {name: figures["tokens"] for name, figures in found["methods"].items()}


def spread_as_whole(asked: Sequence[str], count: int, cwd: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Runs the program in several processes and in one, which must write the same; what the several told."""
    spread = decoded(["-m", "dynatui", *asked, "--tensor-parallel", str(count)], cwd)
    assert tokens(spread) == tokens(decoded_here(asked, capsys))
    assert all(figures["identical_to_ar"] is not False for figures in spread["methods"].values())
    return spread
