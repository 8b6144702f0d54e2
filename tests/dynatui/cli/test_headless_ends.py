"""A run without a screen ends within three seconds of a signal, though nobody takes what it writes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dynatui.record.reader import read

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs signals and pipes")]

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
SOON_S = 3.0
FULL_S = 0.3
"""Within which a pipe that nobody reads is full."""
PROGRAM = """
import sys
from itertools import count
from pathlib import Path
import decoder
from msgspec import structs
from decoder.events import Round
from dynatui.cli import main as cli
from tests.dynatui.endless_engine import EndlessEngine
numbers = count()
def long(event):
    if next(numbers) == 50:
        Path(sys.argv[2]).touch()
    return structs.replace(event, text="x" * 1000) if isinstance(event, Round) else event
def decode(pair, prompt, config, steering):
    return EndlessEngine(pause_s=0.0, foreign=long).decode(prompt, config, steering)
vars(decoder).update(load_pair=lambda **_: None, decode=decode)
sys.exit(cli.main(["--headless", "--prompt", "x", "--record", sys.argv[1]]))
"""
"""The program with an engine that tells much."""


def ended_after(recording: Path, number: signal.Signals, *, reading: bool) -> tuple[int, float, str]:
    """Exit code, seconds from the signal to the end, and what was said."""
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
        return code, took_s, running.stderr.read()


@pytest.mark.parametrize("number", SIGNALS[:2])
def test_nobody_reads_the_recording(tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "fifo")
    code, took_s, said = ended_after(tmp_path / "fifo", number, reading=True)
    assert (code, "Traceback" in said) == (130, False)
    assert took_s < SOON_S


@pytest.mark.parametrize("number", SIGNALS)
def test_nobody_reads_the_output(tmp_path: Path, number: signal.Signals) -> None:
    code, took_s, said = ended_after(tmp_path / "run.jsonl", number, reading=False)
    assert (code, "Traceback" in said, "Exception" in said) == (130, False, False)
    assert took_s < SOON_S
    assert read(tmp_path / "run.jsonl")
