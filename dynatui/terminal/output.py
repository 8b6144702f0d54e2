"""Writes to the terminal, without raising errors, which would end Textual's thread, and waits for the foreground."""

import curses
import errno
import os
import select
import signal
import termios
import time
from contextlib import suppress
from typing import Any

from decoder.errors import ConfigError

_WRITE_TIMEOUT_S = 1.0
"""Longest time, in seconds, by which a blocked terminal may delay the end of the program."""
_LOOK_UP_S = 0.1
_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"
_GIVE_BACK = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l"  # bracketed paste, line wrap, in-band resize reports
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # the mouse
    f"\x1b[<u\x1b[m{_LEAVE}\x1b[?25h\x1b[?1004l"  # key encoding, colours, alternate screen, cursor, focus reports
)
"""The sequences that Textual sends when it ends, which reset the terminal's modes."""
QUESTION, ANSWER = "\x1b[5n", "\x1b[0n"
"""Device status report: a terminal answers once it has read all output before the question. No key sends the answer."""
_SILENT_S = 1.0
"""A terminal that has not answered this many seconds after the first question is assumed not to know the question."""
_LOST_S = 15.0
"""Seconds since the last answer after which open questions count as lost, if the terminal has answered before."""


class Answers:
    """Open questions to the terminal. Once an answer is overdue, none is awaited until the terminal answers again."""

    def __init__(self) -> None:
        self._open = 0
        self._since_s = 0.0
        """Time of the latest answer, or of the first question after all questions were answered."""
        self._patience_s = _SILENT_S

    def ask(self, now: float) -> None:
        if not self._open:
            self._since_s = now
        self._open += 1

    def take(self, now: float) -> None:
        """Registers an answer: this terminal answers, so an open question is awaited for up to `_LOST_S`."""
        self._since_s, self._patience_s = now, _LOST_S
        self._open = max(0, self._open - 1)

    def complete(self, now: float) -> bool:
        if self._open and now - self._since_s >= self._patience_s:
            self._open, self._patience_s = 0, 0.0
        return not self._open


class Output:
    """A file for Textual to write to; without a terminal, everything is discarded."""

    def __init__(self, terminal: int | None = None) -> None:
        self.sent_bytes = 0
        self._descriptor = None if terminal is None else _reopened(terminal)
        self._modes = None if self._descriptor is None else modes_of(self._descriptor)
        self.erases_in_color = self._descriptor is not None and _erases_in_color(self._descriptor)
        """Whether erased cells get the present background colour."""
        self._writing = False
        self._answers = Answers()
        self._entered = False
        """Whether the terminal shows its alternate screen."""
        self._lost = False
        self._leaving_since: float | None = None

    @property
    def lost(self) -> bool:
        if not self._lost and self._descriptor is not None:
            try:
                termios.tcgetattr(self._descriptor)
            except termios.error:
                self._lost = True
        return self._lost

    @property
    def busy(self) -> bool:
        """Whether a frame is in transit: not yet written, or not yet read by a terminal that answers questions."""
        return self._writing or not self._answers.complete(time.monotonic())

    def forget_answers(self) -> None:
        """Drops all open questions: the terminal may have lost them, or this may be another terminal."""
        self._answers = Answers()

    def question(self) -> str:
        """The question to write after a frame; empty without a terminal."""
        if self._descriptor is None:
            return ""
        self._answers.ask(time.monotonic())
        return QUESTION

    def answered(self) -> None:
        self._answers.take(time.monotonic())

    def leave(self) -> None:
        """From now on, writes wait for a blocked terminal for at most one second."""
        self._leaving_since = time.monotonic()

    def write(self, text: str) -> int:
        self._writing = True
        if text in (_ENTER, _LEAVE):
            self._entered = text == _ENTER
        unsent = memoryview(text.encode("utf-8", "replace"))
        while unsent and not self._lost and self._descriptor is not None:
            unsent = unsent[self._send(self._descriptor, unsent) :]
        self._writing = False
        return len(text)

    def restore(self) -> None:
        """Restores the terminal, unless the app has already done so; from now on, output is discarded."""
        self._lost = True
        if self._descriptor is None or not self._entered:
            return
        give_back(self._descriptor, self._modes)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        if self._descriptor is None:
            raise OSError("no terminal")
        return self._descriptor

    def isatty(self) -> bool:
        return self._descriptor is not None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _send(self, descriptor: int, unsent: memoryview) -> int:
        if not select.select([], [descriptor], [], _LOOK_UP_S)[1]:
            since = self._leaving_since
            self._lost |= since is not None and time.monotonic() - since > _WRITE_TIMEOUT_S
            return 0
        try:
            sent = os.write(descriptor, unsent)
        except BlockingIOError:
            return 0
        except OSError:
            self._lost = True
            return 0
        self.sent_bytes += sent
        return sent


def give_back(terminal: int, modes: list[Any] | None) -> None:
    """Leaves the alternate screen and restores the terminal's modes as they were before the app."""
    if select.select([], [terminal], [], _LOOK_UP_S)[1]:
        with suppress(OSError):
            os.write(terminal, _GIVE_BACK.encode())
    if modes is not None:
        with suppress(termios.error):
            termios.tcflush(terminal, termios.TCIFLUSH)
            termios.tcsetattr(terminal, termios.TCSANOW, modes)


def modes_of(terminal: int) -> list[Any] | None:
    try:
        return termios.tcgetattr(terminal)
    except termios.error:
        return None


def _reopened(terminal: int) -> int:
    """A new descriptor of the terminal, on which writes do not block; the shell's descriptor stays unchanged."""
    with suppress(OSError):
        return os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.dup(terminal)


def wait_for_foreground(terminal: int) -> None:
    """Returns once this process may set the modes of the terminal; until then, the system stops it.

    Call it in the main thread. Raises ConfigError if no shell is left that could put the process into the foreground.
    """
    before = signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    try:
        while not _drained(terminal):
            pass
    finally:
        signal.signal(signal.SIGTTOU, before)


def _drained(terminal: int) -> bool:
    """Waits until all output is sent; the system stops a background process here. False if a signal interrupts it."""
    try:
        termios.tcdrain(terminal)
    except termios.error as error:
        if error.args[0] == errno.EINTR:
            return False
        if error.args[0] == errno.EIO:
            raise ConfigError(
                "the terminal belongs to another job, and no shell can hand it over; start dynatui in the foreground, "
                "or use --headless"
            ) from None
    return True


def _erases_in_color(terminal: int) -> bool:
    """Whether the terminal can erase cells and gives them the background colour, according to its terminfo entry."""
    try:
        curses.setupterm(fd=terminal)
    except curses.error:
        return False
    return curses.tigetflag("bce") == 1 and curses.tigetstr("ech") is not None
