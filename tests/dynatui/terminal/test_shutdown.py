"""A key or a signal ends the program within three seconds even if a part of it hangs, and the terminal is restored."""

import os
import signal
import sys
import termios
import time
from pathlib import Path

import pytest

from decoder.events import Round
from dynatui.record.reader import read_events
from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import ENTER, Start, Terminal, assert_left_clean

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")]

SOON_S = 3.0
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
WAYS = ("q", "\x03", *SIGNALS)
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


def modes(terminal: Terminal) -> list[object]:
    """Modes of the terminal, for example echo."""
    return termios.tcgetattr(terminal.child.fileno())


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
    terminal.wait_for("at w")
    terminal.read(1.0)
    terminal.send("P")
    terminal.wait_for("PAUSED")
    terminal.send("r")
    terminal.wait_for("recorded in fifo")
    assert_ends_soon(terminal, way)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_it_ends_soon_though_its_thread_is_stuck(start: Start, tmp_path: Path, way: str | signal.Signals) -> None:
    terminal = start("-c", script(RECORDED + STUCK))
    before = modes(terminal)
    terminal.wait_for(" w9")
    assert modes(terminal) != before
    terminal.send("x")
    terminal.read(0.2)
    assert_ends_soon(terminal, way)
    assert read_events(tmp_path / "run.jsonl")


def test_the_terminal_gets_its_modes_back_from_a_stuck_program(start: Start) -> None:
    terminal = start("-c", script(STUCK))
    keyboard = os.dup(terminal.child.fileno())
    before = termios.tcgetattr(keyboard)
    terminal.wait_for(" w9")
    assert termios.tcgetattr(keyboard) != before
    terminal.send("x")
    terminal.read(0.5)
    assert_ends_soon(terminal, signal.SIGTERM)
    assert termios.tcgetattr(keyboard) == before
    os.close(keyboard)


@pytest.mark.parametrize("way", KEY_AND_SIGNAL, ids=repr)
def test_it_ends_soon_before_its_screen_is_there(start: Start, way: str | signal.Signals) -> None:
    terminal = start("-c", script(SLOW_TO_MOUNT))
    while ENTER not in terminal.written:
        terminal.read(0.1)
    terminal.read(0.3)
    assert_ends_soon(terminal, way)


def test_a_signal_while_the_summary_is_printed_ends_it(start: Start) -> None:
    terminal = start("-c", script("run.lines = lambda *_, **__: time.sleep(60)\n"))
    terminal.wait_for(" w9")
    terminal.send("q")
    terminal.read(0.5)
    began = time.monotonic()
    terminal.child.kill(signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert time.monotonic() - began < 1.0
    assert_left_clean(terminal)


def test_q_in_the_editor_is_a_letter_and_ends_nothing(start: Start) -> None:
    terminal = start("-c", script(STUCK))
    terminal.wait_for(" w9")
    terminal.send("E")
    terminal.wait_for("Edit the prompt")
    terminal.send("q")
    terminal.wait_for("oneq")
    terminal.read(SOON_S)
    assert terminal.child.isalive()
