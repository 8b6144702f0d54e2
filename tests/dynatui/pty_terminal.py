"""Runs a program in a pseudo-terminal: its screen, all bytes that it writes, and its exit code."""

import codecs
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pexpect
import pyte
import pytest

from benchmarks.terminal import STATUS, Responder
from decoder.events import Base, encode
from dynatui.terminal.output import QUESTION, modes_of
from tests.dynatui.warm_python import WarmPython

ROOT = Path(__file__).parents[2]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
FRAME = QUESTION.encode()
"""The program's question after each frame."""
_ON_AND_OFF = (1000, 1003, 1004, 1006, 1015, 2004)
"""Modes for mouse, focus and paste that Textual sets and must reset."""
_AT_ONCE = 512
_PATIENCE_S = 120.0
"""Long, because a program starts in a second or two but needs much longer on a busy machine."""


@dataclass
class Terminal:
    """The test's end of a pseudo-terminal with a program at the other end."""

    child: "pexpect.spawn[bytes]"
    screen: pyte.Screen
    written: bytes = b""
    modes: list[Any] | None = None
    _stream: pyte.Stream = field(init=False)
    _decode: codecs.IncrementalDecoder = field(init=False)
    _responder: Responder = field(default_factory=lambda: Responder(STATUS))

    def __post_init__(self) -> None:
        self._stream = pyte.Stream(self.screen)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self.first_modes = modes_of(self.child.fileno())

    @property
    def rows(self) -> list[str]:
        """Lines of the screen; pyte's own `display` fails on half of a wide character."""
        cells = self.screen.buffer
        return ["".join(cells[y][x].data for x in range(self.screen.columns)) for y in range(self.screen.lines)]

    @property
    def shown(self) -> str:
        return "\n".join(self.rows)

    @property
    def afterwards(self) -> str:
        return self.written.rpartition(LEAVE)[2].decode()

    def read(self, seconds: float = 0.05) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._take(0.02):
            pass
        return self.shown

    def read_frame(self, at_most_s: float) -> str:
        """Reads until the program has drawn another frame, or for so many seconds if it draws none."""
        end, frames = time.monotonic() + at_most_s, self.written.count(FRAME)
        while time.monotonic() < end and self.written.count(FRAME) == frames and self._take(0.02):
            pass
        return self.shown

    def wait_for(self, text: str) -> str:
        if not self.wait_until(lambda: text in self.shown):
            pytest.fail(f"{text!r} never came; the screen is\n{self.shown}")
        self._take(0.02)  # the rest of the frame, which may have arrived in parts
        return self.shown

    def wait_until(self, holds: Callable[[], bool]) -> bool:
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            self.read()
            if holds():
                return True
            if not self.child.isalive():
                break
        return False

    def play(self, *steps: str | bytes | float) -> str:
        """Waits for each text, sends all bytes and reads for so many seconds; returns the text of the screen."""
        for step in steps:
            if isinstance(step, str):
                self.wait_for(step)
            elif isinstance(step, bytes):
                self.send(step)
            else:
                self.read(step)
        return self.shown

    def send(self, keys: str | bytes) -> None:
        """Sends keys and reads meanwhile, because a program whose output is not read stops reading keys."""
        rest, descriptor = keys.encode() if isinstance(keys, str) else keys, self.child.fileno()
        end = time.monotonic() + _PATIENCE_S
        while rest and time.monotonic() < end:
            if select.select([], [descriptor], [], 0)[1]:
                rest = rest[os.write(descriptor, rest[:_AT_ONCE]) :]
            self._take(0)
        assert not rest, f"the keys are not read; the screen is\n{self.shown}"

    def end(self, within_s: float = _PATIENCE_S) -> int:
        """Waits for the end; returns the exit code, negative for a signal. Fails if the program runs longer."""
        end = time.monotonic() + within_s
        while self.child.isalive() and time.monotonic() < end:
            self._take(0.02)
        self.read(0.2)
        assert not self.child.isalive(), f"the program goes on; the screen is\n{self.shown}"
        self.modes = modes_of(self.child.fileno())
        return self._code()

    def hang_up(self) -> float:
        """Closes the test's end; returns the seconds until the program ended."""
        began = time.monotonic()
        os.close(self.child.fileno())
        while time.monotonic() < began + _PATIENCE_S and self.goes_on():
            time.sleep(0.02)
        return time.monotonic() - began

    def resize(self, columns: int, lines: int) -> None:
        self.child.setwinsize(lines, columns)
        self.screen.resize(lines, columns)

    def goes_on(self) -> bool:
        """Whether the program still runs; does not read from the terminal."""
        ended, status = os.waitpid(self.child.pid, os.WNOHANG)
        self.child.terminated = ended != 0
        self.child.closed = ended != 0
        self.child.exitstatus = os.waitstatus_to_exitcode(status) if ended else None
        return not ended

    def _code(self) -> int:
        self.child.close(force=True)
        return -self.child.signalstatus if self.child.signalstatus else self.child.exitstatus or 0

    def _take(self, seconds: float) -> bool:
        """Reads available output; returns whether more may follow."""
        try:
            chunk = self.child.read_nonblocking(65536, timeout=seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.written += chunk
        with suppress(OSError):  # the program may have ended meanwhile
            os.write(self.child.fileno(), self._responder.answer(chunk))
        with suppress(Exception):  # the emulated screen is only a view; tests also check the raw bytes
            self._stream.feed(self._decode.decode(chunk))
        return True


Start: TypeAlias = Callable[..., Terminal]


@contextmanager
def terminals(home: Path, warm: WarmPython | None = None) -> Iterator[Start]:
    """Function that starts Python with arguments in a pseudo-terminal; all processes are killed at the end.

    `warm` starts it with the program imported; without it, each start is that of a new interpreter.
    """
    begun: list[Terminal] = []

    def begin(
        *arguments: str, size: tuple[int, int] = (80, 24), cwd: Path | None = None, **environment: str
    ) -> Terminal:
        usual = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
        own = {"TERM": "xterm-256color", "HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        own["DYNATUI_TOUR"] = "false"  # the tour would take the keys
        everything = {**usual, **own, **environment}
        if warm:
            child = warm.spawn(arguments, cwd or home, everything, size)
        else:
            child = pexpect.spawn(
                sys.executable, list(arguments), cwd=cwd or home, env=everything, dimensions=size[::-1], timeout=20
            )
        child.delaybeforesend = None
        child.ptyproc.delayafterclose = 0.0  # `end` has already waited for the program
        begun.append(Terminal(child, pyte.Screen(*size)))
        return begun[-1]

    try:
        yield begin
    finally:
        for terminal in begun:
            with suppress(OSError):
                os.kill(terminal.child.pid, signal.SIGKILL)
            with suppress(OSError, pexpect.ExceptionPexpect):
                terminal.child.close(force=True)


def written(path: Path, events: Iterable[Base]) -> str:
    """Writes a recording of these events; returns its path."""
    path.write_bytes(b"".join(map(encode, events)))
    return str(path)


def assert_left_clean(terminal: Terminal, *, screens: int = 1) -> None:
    """Checks that alternate screen, cursor, line wrap, mouse, focus and paste modes and keyboard protocol were reset.

    `screens` is the number of times that the alternate screen was entered.
    """
    sent = terminal.written
    assert sent.count(ENTER) == sent.count(LEAVE) == screens
    last = {mode: sent.rfind(b"\x1b[?%dl" % mode) - sent.rfind(b"\x1b[?%dh" % mode) for mode in _ON_AND_OFF}
    assert all(place >= 0 for place in last.values()), last
    assert sent.rfind(b"\x1b[?25h") > sent.rfind(b"\x1b[?25l"), "the cursor is seen again"
    assert sent.rfind(b"\x1b[?7h") > sent.rfind(b"\x1b[?7l"), "lines wrap again"
    assert sent.rfind(b"\x1b[<u") > sent.rfind(b"\x1b[>"), "the keyboard speaks plainly again"


def assert_modes_given_back(terminal: Terminal) -> None:
    """Checks that the modes of the terminal (echo, line editing) are those before the program started."""
    assert terminal.first_modes is not None
    assert terminal.modes == terminal.first_modes


def edits_lines(terminal: Terminal) -> bool:
    """Whether the terminal, after the program ended, echoes what is typed and edits whole lines."""
    assert terminal.modes is not None
    usual = termios.ICANON | termios.ECHO
    return bool(terminal.modes[tty.LFLAG] & usual == usual)


def leave(terminal: Terminal, code: int = 0, *, key: str = "q", screens: int = 1) -> None:
    """Presses a key that ends the program; checks the exit code and that the terminal is left clean."""
    terminal.send(key)
    assert terminal.end() == code
    assert_left_clean(terminal, screens=screens)
