"""The three standard streams: whether they can show a screen, and their errors.

Any of them can be a terminal, a pipe, a full disk or closed. Knows nothing of the output's content.
"""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from decoder.errors import DecoderError
from dynatui.clean import clean, clean_line


class OutputError(DecoderError):
    """Standard output cannot take the result."""


class ReaderLeftError(Exception):
    """The reader has closed standard output, as `| head` does: a normal end of a run, not a failure."""


def can_show_screen() -> bool:
    """Whether a screen can be shown: drawn on standard output and error, steered from standard input.

    Standard input that is no terminal becomes one: a prompt that comes through it has to be read before.
    """
    if not can_draw() or sys.stdin is None:
        return False
    return sys.stdin.isatty() or read_keyboard(sys.stdin.fileno())


def can_draw() -> bool:
    """Whether standard output and error are a terminal that a screen can be drawn on."""
    drawn_on = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    return drawn_on and os.environ.get("TERM") != "dumb"


def read_keyboard(descriptor: int) -> bool:
    """Reopens the descriptor of standard input, after a prompt was read from it, as the terminal's; returns success."""
    try:
        keyboard = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(keyboard, descriptor)
    os.close(keyboard)
    return True


def for_printing() -> tuple[TextIO, TextIO]:
    """Standard output and error; a pipe gets UTF-8 whatever the locale; a closed stream discards its output."""
    out, err = (stream or _nowhere() for stream in (sys.stdout, sys.stderr))
    if isinstance(out, TextIOWrapper):
        out.reconfigure(encoding=out.encoding if out.isatty() else "utf-8", errors="replace")
    return out, err


def show(text: str, out: TextIO) -> None:
    """Writes to standard output, faithful to a pipe and clean to a terminal; raises ReaderLeftError or OutputError."""
    try:
        out.write(clean(text) if out.isatty() else text)
        out.flush()
    except BrokenPipeError:
        raise ReaderLeftError from None
    except OSError as error:
        raise OutputError(
            f"cannot write to standard output: {error.strerror}; send it to a place with free space"
        ) from None


def discard_output() -> None:
    """Discards the buffer of a broken standard output, or Python would report it at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def discard_errors() -> None:
    """Discards a broken standard error, so that it does not change the exit code."""
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def say(line: str) -> None:
    """Prints one line of the program on standard error."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"dynatui: {clean_line(line)}\n")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
