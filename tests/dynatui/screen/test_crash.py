"""The program ended from outside at any moment: a signal, a kill, a lost terminal, a full disk."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from decoder.events import Round, Run
from dynatui.record.reader import read_events
from dynatui.record.recording import Recorder
from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import Start, Terminal, assert_left_clean, leave
from tests.dynatui.scripted_runs import story

RECORDED = 'record = Path("run.jsonl")'
SOON_S = 12.0


def decoding(start: Start, before: str = RECORDED) -> Terminal:
    terminal = start("-c", script(before))
    terminal.wait_for(" w9")
    return terminal


def assert_whole(path: Path, *, closed: bool = True) -> None:
    assert any(isinstance(event, Round) for event in read_events(path))
    assert path.read_bytes().endswith(b"\n") or not closed
    assert path.stat().st_mode & 0o77 == 0


KILLED = """
import itertools, sys
from pathlib import Path
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.record.recording import Recorder
from tests.dynatui.endless_engine import EndlessEngine
with Recorder(Path("run.jsonl")) as recorder:
    print("ready", flush=True)
    while True:
        for event in EndlessEngine(rounds=40, pause_s=0.0).decode("one", RunConfig(), Steering()):
            recorder.write(event)
"""


def test_a_recording_survives_kills_at_random_moments_and_goes_on_behind_them(start: Start, tmp_path: Path) -> None:
    chosen, path, runs = random.Random(9), tmp_path / "run.jsonl", 0
    for _ in range(3):
        terminal = start("-c", KILLED)
        terminal.wait_for("ready")
        time.sleep(chosen.uniform(0.0, 0.1))
        terminal.child.kill(signal.SIGKILL)
        assert terminal.end() == -signal.SIGKILL
        before, runs = runs, sum(isinstance(event, Run) for event in read_events(path))
        assert runs > before, "what is there stays, and the next run follows it"
    with Recorder(path) as recorder:
        for event in story(2):
            recorder.write(event)
    assert read_events(path)[-len(story(2)) :] == story(2)


@pytest.mark.parametrize("reading", [True, False], ids=["reading", "stuck"])
def test_losing_the_terminal_ends_the_program_soon(start: Start, tmp_path: Path, *, reading: bool) -> None:
    terminal = decoding(start)
    if not reading:
        fill(terminal)
    assert terminal.hang_up() < SOON_S
    assert terminal.child.exitstatus == 128 + signal.SIGHUP
    assert_whole(tmp_path / "run.jsonl")


def test_a_signal_ends_the_program_soon_though_the_terminal_does_not_read(start: Start, tmp_path: Path) -> None:
    terminal = decoding(start)
    fill(terminal)
    terminal.child.kill(signal.SIGTERM)
    began = time.monotonic()
    while terminal.goes_on() and time.monotonic() < began + 2 * SOON_S:
        time.sleep(0.02)
    assert time.monotonic() - began < SOON_S
    assert_whole(tmp_path / "run.jsonl")


def fill(terminal: Terminal) -> None:
    for _ in range(20):
        os.write(terminal.child.fileno(), b"vT")
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "page", "words"),
    [
        (signal.SIGINT, "", ""),
        (signal.SIGHUP, "?", "esc goes back"),
        (signal.SIGTERM, "E", "Edit the prompt"),
        (signal.SIGTERM, "\x10", "words of a line"),
    ],
    ids=["no page", "help", "edit", "palette"],
)
def test_a_signal_closes_the_recording_and_gives_the_terminal_back(
    start: Start, tmp_path: Path, number: signal.Signals, page: str, words: str
) -> None:
    terminal = decoding(start)
    terminal.send(page)
    terminal.wait_for(words)
    terminal.child.kill(number)
    assert terminal.end(within_s=SOON_S) == 128 + number
    assert_left_clean(terminal)
    assert_whole(tmp_path / "run.jsonl")


FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
engine = EndlessEngine(pause_s=0.01)
"""


@pytest.mark.parametrize("begun", ["from the start", "by a key"])
def test_a_disk_that_fills_up_ends_the_recording_and_not_the_program(start: Start, tmp_path: Path, begun: str) -> None:
    terminal = start("-c", script(FULL_DISK + (RECORDED if begun == "from the start" else "")))
    if begun == "by a key":
        terminal.play(" w1", b"r")
    terminal.play("File too large", b"R", " w1")
    assert "REC" not in terminal.shown
    leave(terminal, 2)
    assert_whole(next(tmp_path.rglob("*.jsonl")), closed=False)


def test_a_full_disk_from_the_first_byte_is_a_failure_panel(start: Start) -> None:
    terminal = start("-c", script('record = Path("/dev/full")'))
    assert "R tries again" in terminal.wait_for("No space left on device")
    leave(terminal, 2)


def test_a_folder_that_takes_no_recording_is_a_note(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    terminal = start("-c", script(), XDG_STATE_HOME=str(tmp_path / "state"))
    terminal.play(" w9", b"r", "cannot write")
    leave(terminal)
