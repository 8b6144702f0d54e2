"""Shared parts of the sweep tests: a request of 24 settings, results without models, and workers to kill."""

import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from dynatui.lab.bench.database import understood
from dynatui.lab.bench.statistics import Median
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.report import Trial, read
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Setting
from dynatui.lab.bench.sweep.trials import Sweep, joined, make

PROGRAM = Path(__file__).with_name("fake_worker.py")
ROOT = Path(__file__).parents[4]
AXES = {"D": (3, 4, 5), "B": (2, 3), "tau": (0.01, 0.05), "T": (100, 200)}
HEARTBEAT_S, GRACE_S = 1.0, 4.0
NEVER_S = 1000
"""A grace so long that no worker is considered dead while it waits for its turn."""


def request(**changes: Any) -> SweepRequest:
    given: dict[str, Any] = {
        "space": "fixed",
        "axes": AXES,
        "reference": {"depth": 5},
        "target": "books-16m",
        "draft": "books-1m",
        "device": "cpu",
        "dtype": "float32",
        "draft_dtype": "float32",
        "prompts": ("The tree grows",),
        "repeats": 1,
        "seed": 0,
    }
    return SweepRequest(**given | changes)


def outcome(speed: float = 1.5, **changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "speed": Median(value=speed, low=speed - 0.1, high=speed + 0.1),
        "over_reference": Median(value=1.0, low=None, high=None),
        "tokens_per_second": 200.0,
        "tokens_per_round": 3.0,
        "acceptance_rate": 0.5,
        "nodes_per_round": 4.0,
        "rounds": 30.0,
        "round_ms": 5.0,
        "disturbed": 0,
    }
    return Outcome(**given | changes)


def fake_result(setting: Setting) -> Outcome:
    """A result that depends only on the setting, in every process."""
    return outcome(1 + hashlib.sha256(setting.key.encode()).digest()[0] / 256)


def sweep_in(
    url: str,
    question: SweepRequest | None = None,
    name: str | None = None,
    *,
    heartbeat_s: float = HEARTBEAT_S,
    grace_s: float = NEVER_S,
) -> Sweep:
    """A study as one worker opens it."""
    database = understood(url)
    make(database)
    return joined(database, question or request(), name, heartbeat_s, grace_s)


def states(sweep: Sweep) -> list[str]:
    """States of all settings, in grid order."""
    return [trial.state for trial in read(sweep).trials]


def done(sweep: Sweep) -> list[Trial]:
    """Settings whose result has a speed."""
    return [trial for trial in read(sweep).trials if trial.state == "done"]


def sqlite_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweeps.db'}"


class FakeWorker:
    """A worker process with a fake measurement."""

    def __init__(self, url: str, log: Path, measure_s: float = 0.02, grace_s: float = GRACE_S) -> None:
        self._log = log
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), url, str(log), str(measure_s), str(grace_s)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_measurements(self, count: int) -> None:
        """Waits until `count` more measurements have started, by any worker with the same log."""
        before, deadline = len(header(self._log)), time.monotonic() + 60
        while len(header(self._log)) < before + count and self.process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def ended(self) -> tuple[int, str]:
        """Exit code and error output."""
        _, said = self.process.communicate(timeout=120)
        return self.process.returncode, said


def header(log: Path) -> list[str]:
    """Keys of all started measurements, with repetitions."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def results(url: str) -> dict[str, Trial]:
    """All settings with a result, by key."""
    return {trial.setting.key: trial for trial in done(sweep_in(url))}


def finished(url: str) -> Counter[str]:
    """Number of results of each setting."""
    return Counter(trial.setting.key for trial in done(sweep_in(url)))
