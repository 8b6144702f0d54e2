"""A run without a screen ends within three seconds of a signal, even if its output is not read."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pytest

from dynatui.record.reader import read_events

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs signals and pipes")]

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
SOON_S = 3.0
PATIENCE_S = 120.0
FULL_S = 0.3
"""Time after which a pipe that is not read is full."""
PROGRAM = """
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
import decoder
from msgspec import structs
from decoder.events import Round
from dynatui import main as cli
from tests.dynatui.endless_engine import EndlessEngine
numbers = count()
def long(event):
    if next(numbers) == 50:
        Path(sys.argv[2]).touch()
    return structs.replace(event, text="x" * 1000) if isinstance(event, Round) else event
def decode(pair, prompt, config, steering):
    return EndlessEngine(pause_s=0.0, foreign=long).decode(prompt, config, steering)
vars(decoder).update(load_pair=lambda **_: SimpleNamespace(prepare=str), decode=decode)
sys.exit(cli.main(["--headless", "--prompt", "x", "--record", sys.argv[1]]))
"""
"""The program with an endless engine that writes much output."""


@dataclass(frozen=True)
class Ended:
    """Result of a finished run."""

    code: int
    took_s: float
    """Seconds from the signal to the end."""
    said: str


def ended_by(signals: Sequence[signal.Signals], folder: Path, recorded: str, *, reading: bool) -> list[Ended]:
    """Starts a run for each signal at the same time, and sends the signals once all runs decode."""
    started = Barrier(len(signals), timeout=PATIENCE_S)

    def end(number: signal.Signals) -> Ended:
        return ended(folder / number.name / recorded, number, started.wait, reading=reading)

    with ThreadPoolExecutor(len(signals)) as at_once:
        return list(at_once.map(end, signals))


def ended(recording: Path, number: signal.Signals, wait_for_others: Callable[[], object], *, reading: bool) -> Ended:
    decoding = recording.parent / "decoding"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(recording), str(decoding)],
        cwd=recording.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.DEVNULL if reading else subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        while not decoding.exists():
            assert running.poll() is None
            time.sleep(0.02)
        wait_for_others()
        time.sleep(FULL_S)
        assert running.poll() is None
        began = time.monotonic()
        running.send_signal(number)
        try:
            code = running.wait(15)
        finally:
            running.kill()
        took_s = time.monotonic() - began
        assert running.stderr is not None
        return Ended(code, took_s, running.stderr.read())


def test_nobody_reads_the_recording(tmp_path: Path) -> None:
    for number in SIGNALS[:1]:
        (tmp_path / number.name).mkdir()
        os.mkfifo(tmp_path / number.name / "fifo")
        unread = os.open(tmp_path / number.name / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    for run in ended_by(SIGNALS[:1], tmp_path, "fifo", reading=True):
        assert (run.code, "Traceback" in run.said) == (130, False)
        assert run.took_s < SOON_S
    os.close(unread)


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    for number in SIGNALS[1:]:
        (tmp_path / number.name).mkdir()
    for run in ended_by(SIGNALS[1:], tmp_path, "run.jsonl", reading=False):
        assert (run.code, "Traceback" in run.said, "Exception" in run.said) == (130, False, False)
        assert run.took_s < SOON_S
    assert all(read_events(tmp_path / number.name / "run.jsonl") for number in SIGNALS[1:])
