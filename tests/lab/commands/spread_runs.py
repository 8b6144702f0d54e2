"""Runs of the program over several processes that torchrun starts; they never outlive their test."""

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
from dynatui import main as cli
from tests.dynatui.pty_terminal import ROOT
from tests.tiny import TinyPair

SPREAD = ",".join(name for name, method in METHODS.items() if not method.whole_target)
FLOAT32 = ("--device", "cpu", "--dtype", "float32")
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Ended:
    """Result of a finished run."""

    code: int
    printed: str
    errors: str


def environment() -> dict[str, str]:
    """Environment variables that give each process one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}


def models(pair: TinyPair | None) -> list[str]:
    """Command-line options that name the models of a tiny pair or of the embedded pair."""
    return [*FLOAT32, *(("--target", str(pair.target), "--draft", str(pair.draft)) if pair else ())]


def ended_run(command: Sequence[str], cwd: Path) -> Ended:
    """Runs Python with these arguments to its end, and kills any processes of the run that are left."""
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


def torchrun(asked: Sequence[str], count: int = 2) -> list[str]:
    """Python's arguments that run the program with these arguments in `count` processes."""
    return ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "-m", "dynatui", *asked]


def decoded(command: Sequence[str], cwd: Path) -> dict[str, Any]:
    """Parsed JSON output of a run without a screen in a new process."""
    done = ended_run([*command, "--json"], cwd)
    assert done.code == 0, done.errors
    found: dict[str, Any] = json.loads(done.printed)
    return found


def decoded_here(asked: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Parsed JSON output of a run without a screen in this process."""
    assert cli.main([*asked, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def tokens(found: dict[str, Any]) -> dict[str, list[int]]:
    """Token ids by method."""
    return {name: figures["tokens"] for name, figures in found["methods"].items()}


def spread_as_whole(asked: Sequence[str], count: int, cwd: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Checks that a run over `count` processes writes the same text as a run in one; returns the former's output."""
    spread = decoded(torchrun(asked, count), cwd)
    assert tokens(spread) == tokens(decoded_here(asked, capsys))
    assert all(figures["identical_to_ar"] is not False for figures in spread["methods"].values())
    return spread
