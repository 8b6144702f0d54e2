"""A key or a signal ends the program within three seconds even if a part of it hangs, and the terminal is restored."""

import signal
import time
from pathlib import Path

import pytest

from decoder.events import Round
from dynatui.record.reader import read_events
from dynatui.terminal.output import modes_of
from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import ENTER, Start, Terminal, assert_left_clean, assert_modes_given_back

SOON_S = 3.0
WAYS = ("q", "\x03", signal.SIGTERM, signal.SIGUSR1)
KEY_AND_SIGNAL = ("q", signal.SIGTERM)
"""One key and one signal, for tests that vary the work in progress and not the way to end it."""
RECORDED = 'record = Path("run.jsonl")\n'
UNREAD = """
os.mkfifo("fifo")
reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
record = Path("fifo")
engine = EndlessEngine(pause_s=0.0)
"""
SLOW = """
import dynatui.screen.commands.record as keep
fill = keep.fill
def slow(*given):
    time.sleep(0.1)
    fill(*given)
keep.fill = slow
"""
SLOW_TO_MOUNT = "dynatui.screen.app.DynaApp.compose = lambda self: time.sleep(60)\n"
STUCK = "import dynatui.screen.commands.record as keep; keep.fill = lambda *_: time.sleep(60)\n"


def assert_ends_soon(terminal: Terminal, way: str | signal.Signals) -> None:
    """Checks that the program ends in time with the right exit code and leaves the terminal clean."""
    began = time.monotonic()
    if isinstance(way, str):
        terminal.send(way)
    else:
        terminal.child.kill(way)
    code = terminal.end()
    assert (took_s := time.monotonic() - began) < SOON_S, took_s
    assert code == (0 if isinstance(way, str) else 128 + way)
    assert_left_clean(terminal)


@pytest.mark.parametrize("way", KEY_AND_SIGNAL, ids=repr)
def test_it_ends_soon_however_often_x_was_pressed(start: Start, tmp_path: Path, way: str | signal.Signals) -> None:
    terminal = start("-c", script(RECORDED + SLOW))
    terminal.wait_for(" w99")
    terminal.send("x" * 150)
    assert_ends_soon(terminal, way)
    assert any(isinstance(event, Round) for event in read_events(tmp_path / "run.jsonl"))


@pytest.mark.parametrize("way", KEY_AND_SIGNAL, ids=repr)
def test_it_obeys_and_ends_soon_though_nobody_reads_what_is_recorded(start: Start, way: str | signal.Signals) -> None:
    terminal = start("-c", script(UNREAD))
    terminal.play("at w", 1.0, b"P", "PAUSED", b"r", "recorded in fifo")
    assert_ends_soon(terminal, way)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_it_ends_soon_though_its_thread_is_stuck(start: Start, tmp_path: Path, way: str | signal.Signals) -> None:
    terminal = start("-c", script(RECORDED + STUCK))
    terminal.wait_for(" w9")
    assert modes_of(terminal.child.fileno()) != terminal.first_modes
    terminal.play(b"x", 0.2)
    assert_ends_soon(terminal, way)
    assert_modes_given_back(terminal)
    assert read_events(tmp_path / "run.jsonl")


@pytest.mark.parametrize("way", KEY_AND_SIGNAL, ids=repr)
def test_it_ends_soon_before_its_screen_is_there(start: Start, way: str | signal.Signals) -> None:
    terminal = start("-c", script(SLOW_TO_MOUNT))
    while ENTER not in terminal.written:
        terminal.read(0.1)
    terminal.read(0.3)
    assert_ends_soon(terminal, way)


def test_a_signal_while_the_summary_is_printed_ends_it(start: Start) -> None:
    terminal = start("-c", script("run.lines = lambda *_, **__: time.sleep(60)\n"))
    terminal.play(" w9", b"q", 0.5)
    began = time.monotonic()
    terminal.child.kill(signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert time.monotonic() - began < 1.0
    assert_left_clean(terminal)


def test_q_in_the_editor_is_a_letter_and_ends_nothing(start: Start) -> None:
    terminal = start("-c", script("import dynatui.terminal.shutdown as end; end.WITHIN_S = 0.2\n"))
    terminal.play(" w9", b"E", "Edit the prompt", b"q", "oneq", 0.5)
    assert terminal.child.isalive()
