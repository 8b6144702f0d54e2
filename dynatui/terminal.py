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

from decoder.errors import ConfigError

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LARGEST_LOG = 2**20
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
    """The log file, which does not grow without bound; the null device where there can be none."""
    try:
        path = user_log_path("dynatui", ensure_exists=True) / "dynatui.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        if os.fstat(descriptor).st_size > _LARGEST_LOG:
            os.ftruncate(descriptor, 0)
        os.close(descriptor)
    except OSError:
        return Path(os.devnull)
    return path


@contextmanager
def screen_only(log: Path) -> Iterator[None]:
    """Leaves the terminal to the app: other output goes to the log, and standard input is the keyboard."""
    saved = {number: os.dup(number) for number in (_STDIN, _STDOUT, _STDERR)}
    names = sys.__stdout__, sys.__stderr__
    drawn_on = _STDERR if os.isatty(_STDERR) else _STDOUT
    picture = os.fdopen(os.dup(drawn_on), "w", encoding="utf-8", errors="replace")
    noise = os.open(log, os.O_WRONLY | os.O_APPEND)
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
    try:
        keyboard = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise ConfigError("standard input is no terminal and there is no other keyboard; use --headless") from None
    os.dup2(keyboard, _STDIN)
    os.close(keyboard)
