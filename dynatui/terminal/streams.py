"""The standard streams, each of which can be a terminal, a pipe, a full disk or closed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from decoder.errors import DecoderError
from dynatui.clean import clean, clean_line


class OutputError(DecoderError): ...


class ReaderLeftError(Exception):
    """The reader of standard output has closed it, as `| head` does: a normal end, not a failure."""


def can_show_screen() -> bool:
    """Whether a screen can be shown. May connect standard input to the keyboard, so a prompt must be read before."""
    drawn_on = all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    if not drawn_on or os.environ.get("TERM") == "dumb" or sys.stdin is None:
        return False
    return sys.stdin.isatty() or read_keyboard(sys.stdin.fileno())


def read_keyboard(descriptor: int) -> bool:
    """Connects standard input's descriptor to the keyboard; returns False if there is no keyboard."""
    try:
        keyboard = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(keyboard, descriptor)
    os.close(keyboard)
    return True


def for_printing() -> tuple[TextIO, TextIO]:
    """Standard output and error. Output to a closed stream is discarded; a pipe gets UTF-8, whatever the locale."""
    out, err = (stream or _nowhere() for stream in (sys.stdout, sys.stderr))
    if isinstance(out, TextIOWrapper):
        out.reconfigure(encoding=out.encoding if out.isatty() else "utf-8", errors="replace")
    return out, err


def show(text: str, out: TextIO) -> None:
    """Prints text; on a terminal, without its control characters. Raises ReaderLeftError and OutputError."""
    try:
        out.write(clean(text) if out.isatty() else text)
        out.flush()
    except BrokenPipeError:
        raise ReaderLeftError from None
    except OSError as error:
        remedy = "send it to a place with free space"
        raise OutputError(f"cannot write to standard output: {error.strerror}; {remedy}") from None


@contextmanager
def results_only() -> Iterator[None]:
    """Within the context, text that libraries print to standard output goes to standard error."""
    with redirect_stdout(sys.stderr or _nowhere()):
        yield


def discard_output() -> None:
    """Discards buffered and later output, since Python would report an error of a broken standard output at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def discard_errors() -> None:
    """If standard error is broken, discards its buffered output, which would otherwise change the exit code."""
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def say(line: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"dynatui: {clean_line(line)}\n")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
