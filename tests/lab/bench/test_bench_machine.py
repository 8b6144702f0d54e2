"""Measuring conditions: the clock on a busy machine, and the commit of the source."""

import subprocess
from pathlib import Path

import pytest
import torch

from decoder.system import device as devices
from decoder.system.device import ComputingClock, Stopwatch
from dynatui.lab.bench import machine
from dynatui.lab.bench.machine import source_commit


def test_a_wait_between_the_two_readings_of_a_clock_takes_another_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ComputingClock(torch.device("cpu"))
    times, waits = iter((10.0, 13.0, 20.0)), iter((1.0, 3.0, 3.0, 3.0, 3.0))
    monkeypatch.setattr(Stopwatch, "now", lambda _: next(times))
    monkeypatch.setattr(devices, "waited_here_s", lambda: next(waits))
    assert clock.now() == 10.0
    assert clock.now() == 17.0


def test_no_work_takes_no_negative_time() -> None:
    clock = ComputingClock(torch.device("cpu"))
    times = [clock.now() for _ in range(2000)]
    assert times == sorted(times)


def git(folder: Path, *words: str) -> str:
    named = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *words]
    return subprocess.run(named, capture_output=True, text=True, check=True).stdout.strip()


def test_a_source_tree_has_its_commit_and_says_whether_it_was_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "decoder" / "bench" / "machine.py"
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr(machine, "__file__", str(file))
    assert source_commit() is None, "as of an installed package"
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "Begin")
    assert source_commit() == git(tmp_path, "rev-parse", "HEAD")
    file.write_text("changed", encoding="utf-8")
    assert source_commit() == git(tmp_path, "rev-parse", "HEAD") + "-dirty"
