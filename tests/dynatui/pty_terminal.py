"""A program in a pseudo-terminal of its own: what it shows, every byte that it wrote, and how it ends."""

import codecs
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pexpect
import pyte
import pytest

from decoder.events import Event, encode
from dynatui.terminal.output import modes_of

ROOT = Path(__file__).parents[2]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
_ON_AND_OFF = (1000, 1003, 1004, 1006, 1015, 2004)
"""Modes of mouse, focus and paste: taken by Textual, to be given back."""
_AT_ONCE = 512
_PATIENCE_S = 120.0
"""A program starts in a second or two, and in many where the machine is busy."""


@dataclass
class Terminal:
    """The near end of a terminal, with a program at the other."""

    child: "pexpect.spawn[bytes]"
    screen: pyte.Screen
    written: bytes = b""
    """Everything the program wrote."""
    modes: list[Any] | None = None
    """Of the terminal, when the program had ended."""
    _stream: pyte.Stream = field(init=False)
    _decode: codecs.IncrementalDecoder = field(init=False)

    def __post_init__(self) -> None:
        self._stream = pyte.Stream(self.screen)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self.first_modes = modes_of(self.child.fileno())
        """Of the terminal, before the program had begun."""

    @property
    def rows(self) -> list[str]:
        """The lines of the screen; pyte's own `display` fails on half of a wide character."""
        cells = self.screen.buffer
        return ["".join(cells[y][x].data for x in range(self.screen.columns)) for y in range(self.screen.lines)]

    @property
    def shown(self) -> str:
        """What the screen shows."""
        return "\n".join(self.rows)

    @property
    def afterwards(self) -> str:
        """What was written once the alternate screen was left."""
        return self.written.rpartition(LEAVE)[2].decode()

    def read(self, seconds: float = 0.05) -> str:
        """What the screen shows after a little while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._take(0.02):
            pass
        return self.shown

    def wait_for(self, text: str) -> str:
        """The screen once it shows a text."""
        if not self.wait_until(lambda: text in self.shown):
            pytest.fail(f"{text!r} never came; the screen is\n{self.shown}")
        return self.shown

    def wait_until(self, holds: Callable[[], bool]) -> bool:
        """Reads until something holds; whether it ever did."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            self.read()
            if holds():
                return True
            if not self.child.isalive():
                break
        return False

    def send(self, keys: str | bytes) -> None:
        """Types, and reads meanwhile: a program that is not read does not read either."""
        rest, descriptor = keys.encode() if isinstance(keys, str) else keys, self.child.fileno()
        end = time.monotonic() + _PATIENCE_S
        while rest and time.monotonic() < end:
            if select.select([], [descriptor], [], 0)[1]:
                rest = rest[os.write(descriptor, rest[:_AT_ONCE]) :]
            self._take(0)
        assert not rest, f"the keys are not read; the screen is\n{self.shown}"

    def end(self, within_s: float = _PATIENCE_S) -> int:
        """The exit code, a signal's number below zero; fails if the program does not end."""
        end = time.monotonic() + within_s
        while self.child.isalive() and time.monotonic() < end:
            self._take(0.02)
        self.read(0.2)
        assert not self.child.isalive(), f"the program goes on; the screen is\n{self.shown}"
        self.modes = modes_of(self.child.fileno())
        return self._code()

    def hang_up(self) -> float:
        """Closes the near end; how many seconds the program went on after that."""
        began = time.monotonic()
        os.close(self.child.fileno())
        while time.monotonic() < began + _PATIENCE_S and self.goes_on():
            time.sleep(0.02)
        return time.monotonic() - began

    def resize(self, columns: int, lines: int) -> None:
        """Another size."""
        self.child.setwinsize(lines, columns)
        self.screen.resize(lines, columns)

    def goes_on(self) -> bool:
        """Whether the program has not ended, without asking the terminal."""
        ended, status = os.waitpid(self.child.pid, os.WNOHANG)
        self.child.terminated = ended != 0
        self.child.closed = ended != 0
        self.child.exitstatus = os.waitstatus_to_exitcode(status) if ended else None
        return not ended

    def _code(self) -> int:
        self.child.close(force=True)
        return -self.child.signalstatus if self.child.signalstatus else self.child.exitstatus or 0

    def _take(self, seconds: float) -> bool:
        """Reads what is there; whether there is anything to come."""
        try:
            chunk = self.child.read_nonblocking(65536, timeout=seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.written += chunk
        with suppress(Exception):  # a picture is for messages; what was written is judged as it is
            self._stream.feed(self._decode.decode(chunk))
        return True


Start: TypeAlias = Callable[..., Terminal]


@contextmanager
def terminals(home: Path) -> Iterator[Start]:
    """Starts Python with arguments, each in a terminal; none outlives the test."""
    begun: list[Terminal] = []

    def begin(
        *arguments: str, size: tuple[int, int] = (80, 24), cwd: Path | None = None, **environment: str
    ) -> Terminal:
        usual = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
        own = {"TERM": "xterm-256color", "HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        own["DYNATUI_TOUR"] = "false"  # whose keys would only end it
        child = pexpect.spawn(
            sys.executable,
            list(arguments),
            cwd=cwd or home,
            env={**usual, **own, **environment},
            dimensions=size[::-1],
            timeout=20,
        )
        child.delaybeforesend = None
        child.ptyproc.delayafterclose = 0.0  # `end` has waited for it
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


def written(path: Path, events: list[Event]) -> str:
    """The path of a recording of these events."""
    path.write_bytes(b"".join(map(encode, events)))
    return str(path)


def assert_left_clean(terminal: Terminal, *, screens: int = 1) -> None:
    """Alternate screen, cursor, line wrap, mouse, focus and paste modes and keyboard protocol are given back.

    `screens`: how often the alternate screen was taken.
    """
    sent = terminal.written
    assert sent.count(ENTER) == sent.count(LEAVE) == screens
    last = {mode: sent.rfind(b"\x1b[?%dl" % mode) - sent.rfind(b"\x1b[?%dh" % mode) for mode in _ON_AND_OFF}
    assert all(place >= 0 for place in last.values()), last
    assert sent.rfind(b"\x1b[?25h") > sent.rfind(b"\x1b[?25l"), "the cursor is seen again"
    assert sent.rfind(b"\x1b[?7h") > sent.rfind(b"\x1b[?7l"), "lines wrap again"
    assert sent.rfind(b"\x1b[<u") > sent.rfind(b"\x1b[>"), "the keyboard speaks plainly again"


def assert_modes_given_back(terminal: Terminal) -> None:
    """The terminal reads, echoes and edits lines as before the program began."""
    assert terminal.first_modes is not None
    assert terminal.modes == terminal.first_modes
