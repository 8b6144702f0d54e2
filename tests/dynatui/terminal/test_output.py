"""Tests of the output to a terminal: its counts, and that no state of the terminal blocks or breaks the program."""

import os
import pty
import select
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import pytest

from dynatui.terminal.output import _LOST_S, _SILENT_S, Answers, Output

MUCH = "x" * 100_000
PATIENCE_S = 60.0
"""Time limit for waits that take at most a second on an idle machine."""


@dataclass
class Terminal:
    """Both ends of a pseudo-terminal and the output to it."""

    outer: int
    inner: int
    output: Output

    def read(self, count: int) -> bytes:
        """Reads `count` bytes that were written to the terminal."""
        got = b""
        while len(got) < count:
            got += os.read(self.outer, count - len(got))
        return got

    def hang_up(self) -> None:
        """Closes the terminal's end."""
        os.close(self.outer)
        self.outer = -1


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal whose output is not read."""
    outer, inner = pty.openpty()
    made = Terminal(outer, inner, Output(inner))
    yield made
    made.output.leave()
    made.output.close()
    os.close(inner)
    if made.outer >= 0:
        os.close(outer)


def writing(terminal: Terminal) -> threading.Thread:
    """A thread that writes more than the terminal takes, once it has begun."""
    writer = threading.Thread(target=terminal.output.write, args=(MUCH,))
    writer.start()
    wait_until(lambda: terminal.output.sent_bytes > 0)
    return writer


def ends(writer: threading.Thread) -> bool:
    writer.join(PATIENCE_S)
    return not writer.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds; fails after `PATIENCE_S`."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_is_written_arrives_and_is_counted(terminal: Terminal) -> None:
    assert terminal.output.write("τ = ▌") == 5
    assert terminal.read(8) == "τ = ▌".encode()
    assert terminal.output.sent_bytes == 8
    assert not terminal.output.busy


def test_it_is_busy_until_the_terminal_has_taken_everything(terminal: Terminal) -> None:
    writer = writing(terminal)
    time.sleep(0.05)
    assert terminal.output.busy
    assert terminal.read(len(MUCH)) == MUCH.encode()
    writer.join(PATIENCE_S)
    assert not terminal.output.busy


def test_a_terminal_that_is_gone_swallows_everything(terminal: Terminal) -> None:
    assert not terminal.output.lost
    terminal.hang_up()
    assert terminal.output.lost
    terminal.output.write(MUCH)
    assert not terminal.output.busy


@pytest.mark.parametrize("end", [Terminal.hang_up, lambda terminal: terminal.output.leave()], ids=["gone", "left"])
def test_a_terminal_that_goes_away_or_takes_nothing_does_not_hold_up_a_write(
    terminal: Terminal, end: Callable[[Terminal], None]
) -> None:
    writer = writing(terminal)
    end(terminal)
    assert ends(writer)


def test_a_terminal_is_given_back_as_it_was_found_and_left_alone_then(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.inner)
    tty.setraw(terminal.inner)
    terminal.output.write("\x1b[?1049h")
    terminal.output.restore()
    terminal.output.write("more")
    assert termios.tcgetattr(terminal.inner) == before
    # A read from a pseudo-terminal may return only a part of the output.
    sent = b""
    while select.select([terminal.outer], [], [], 0.2)[0]:
        sent += os.read(terminal.outer, 4096)
    assert b"\x1b[?1049l" in sent
    assert b"\x1b[?25h" in sent
    assert b"more" not in sent


def test_a_terminal_that_was_given_back_already_is_not_touched(terminal: Terminal) -> None:
    terminal.output.write("\x1b[?1049h")
    terminal.output.write("\x1b[?1049l")
    terminal.output.restore()
    assert terminal.read(16) == b"\x1b[?1049h\x1b[?1049l"
    assert terminal.output.sent_bytes == 16


def test_a_terminal_that_takes_nothing_does_not_hold_up_its_return(terminal: Terminal) -> None:
    terminal.output.write("\x1b[?1049h")
    writer = threading.Thread(target=terminal.output.write, args=(MUCH,))
    writer.start()
    wait_until(lambda: terminal.output.busy)
    time.sleep(0.1)
    began = time.monotonic()
    terminal.output.restore()
    assert time.monotonic() - began < 1
    writer.join(3)
    assert not writer.is_alive()


def test_the_shells_own_descriptor_goes_on_to_block(terminal: Terminal) -> None:
    assert os.get_blocking(terminal.inner)
    assert not os.get_blocking(terminal.output.fileno())


def test_without_a_terminal_everything_vanishes() -> None:
    line = Output()
    assert line.write("text") == 4
    assert not line.lost
    assert not line.isatty()
    with pytest.raises(OSError, match="no terminal"):
        line.fileno()


@pytest.fixture(params=[(1,), (3,), (7, 0, 1, 0), (10_000,)], ids=str)
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that each write took; the parameters are limits that take turns, and a limit of 0 is a BlockingIOError."""
    most, write, found = cycle(request.param), os.write, list[int]()

    def in_parts(descriptor: int, data: memoryview) -> int:
        found.append(0)
        if not (count := next(most)):
            raise BlockingIOError
        found[-1] = write(descriptor, data[:count])
        return found[-1]

    monkeypatch.setattr(os, "write", in_parts)
    return found


def test_a_text_that_is_taken_in_parts_arrives_whole(terminal: Terminal, taken: list[int]) -> None:
    text = "τ = ▌" * 40 + "\x1b[0m end"
    whole = text.encode()
    assert terminal.output.write(text) == len(text)
    assert sum(taken) == terminal.output.sent_bytes == len(whole)
    assert terminal.read(len(whole)) == whole
    assert not terminal.output.busy


def test_a_frame_is_on_its_way_until_the_terminal_has_answered(terminal: Terminal) -> None:
    terminal.output.write(f"frame{terminal.output.question()}")
    assert terminal.read(9) == b"frame\x1b[5n"
    assert terminal.output.busy
    terminal.output.answered()
    assert not terminal.output.busy
    assert Output().question() == "", "without a terminal, nothing answers"


def test_a_terminal_that_never_answers_is_waited_for_once() -> None:
    answers = Answers()
    answers.ask(0.0)
    answers.ask(0.5)
    assert not answers.complete(0.9 * _SILENT_S)
    assert answers.complete(_SILENT_S)
    answers.ask(7.0)
    assert answers.complete(7.0)


def test_a_terminal_that_answers_late_is_waited_for_from_then_on() -> None:
    answers = Answers()
    answers.ask(0.0)
    assert answers.complete(_SILENT_S)
    answers.ask(2.0)
    answers.take(3.0)
    answers.ask(4.0)
    assert not answers.complete(4.0 + 2 * _SILENT_S)
    answers.take(7.0)
    assert answers.complete(7.0)


def test_an_answer_that_is_lost_delays_one_frame_and_a_surplus_one_answers_nothing() -> None:
    answers = Answers()
    for _ in range(2):
        answers.ask(0.0)
        answers.take(0.1)
        answers.take(0.2)
    assert answers.complete(0.3)
    answers.ask(1.0)
    assert not answers.complete(1.0 + 0.9 * _LOST_S)
    assert answers.complete(1.0 + _LOST_S)
    answers.ask(30.0)
    assert answers.complete(30.0)
    answers.take(30.1)
    answers.ask(31.0)
    assert not answers.complete(31.5)


@pytest.mark.parametrize(("term", "erases"), [("xterm-256color", True), ("screen-256color", False), ("no-such", False)])
def test_whether_erased_cells_are_coloured_is_read_from_terminfo(term: str, *, erases: bool) -> None:
    told = "from dynatui.terminal.output import _erases_in_color; print(_erases_in_color(0))"
    environment = {**os.environ, "TERM": term}
    found = subprocess.run([sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == f"{erases}\n"
