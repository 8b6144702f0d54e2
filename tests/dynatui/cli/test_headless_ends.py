"""A run without a screen ends within three seconds of a signal, even if its output is not read."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from dynatui.record.reader import read

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs signals and pipes")]

SOON_S = 3.0
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


def end_soon(signals: Sequence[signal.Signals], folder: Path, recorded: str, output: int) -> None:
    """Starts a run for each signal; once all of them decode, each must end soon after its signal, as interrupted."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    runs = dict[signal.Signals, subprocess.Popen[str]]()
    with ExitStack() as started:
        for number in signals:
            here = folder / number.name
            here.mkdir(exist_ok=True)
            command = [sys.executable, "-c", PROGRAM, str(here / recorded), str(here / "decoding")]
            run = subprocess.Popen(command, cwd=here, env=environment, stdout=output, stderr=subprocess.PIPE, text=True)
            runs[number] = started.enter_context(run)
            started.callback(runs[number].kill)
        for number, running in runs.items():
            while not (folder / number.name / "decoding").exists():
                assert running.poll() is None
                time.sleep(0.02)
        time.sleep(FULL_S)
        for number, running in runs.items():
            assert running.poll() is None
            began = time.monotonic()
            running.send_signal(number)
            assert (running.wait(15), time.monotonic() - began < SOON_S) == (130, True)
            assert running.stderr is not None
            assert not re.search("Traceback|Exception", running.stderr.read())


def test_nobody_reads_the_recording(tmp_path: Path) -> None:
    (tmp_path / "SIGTERM").mkdir()
    os.mkfifo(tmp_path / "SIGTERM" / "fifo")
    unread = os.open(tmp_path / "SIGTERM" / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    end_soon([signal.SIGTERM], tmp_path, "fifo", subprocess.DEVNULL)
    os.close(unread)


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    signals = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    end_soon(signals, tmp_path, "run.jsonl", subprocess.PIPE)
    assert all(read(tmp_path / number.name / "run.jsonl") for number in signals)
