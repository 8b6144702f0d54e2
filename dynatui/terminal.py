"""The terminal around the app: native code must not write into the picture, and every exit must leave it as it was.

Textual draws on standard error and reads standard input. CUDA and tokenizers write to both outputs from C, behind
Python's back; while the app runs, the file descriptors 1 and 2 therefore lead to a log file.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_log_path

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
}


def quieten() -> None:
    """Asks libraries that draw progress bars to leave it; the user's own settings stand."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def log_path() -> Path:
    """The log file, in a directory that exists."""
    return user_log_path("dynatui", ensure_exists=True) / "dynatui.log"


@contextmanager
def screen_only(log: Path) -> Iterator[None]:
    """Leaves the terminal to the app: other output goes to the log, and standard input is the keyboard."""
    saved = {number: os.dup(number) for number in (_STDIN, _STDOUT, _STDERR)}
    names = sys.__stdout__, sys.__stderr__
    picture = os.fdopen(os.dup(_STDERR), "w", encoding="utf-8", errors="replace")
    noise = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # Textual asks the first name for the size of the terminal, and draws where the second leads.
        sys.__stdout__ = sys.__stderr__ = picture  # type: ignore[misc]
        os.dup2(noise, _STDOUT)
        os.dup2(noise, _STDERR)
        if not os.isatty(_STDIN):
            _read_keyboard()
        yield
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)
        os.close(noise)
        sys.__stdout__, sys.__stderr__ = names  # type: ignore[misc]
        picture.close()


def _read_keyboard() -> None:
    """Puts the terminal where standard input was: a prompt has been read from there."""
    keyboard = os.open("/dev/tty", os.O_RDWR)
    os.dup2(keyboard, _STDIN)
    os.close(keyboard)
