"""Checks before an app starts; redirects all output except the app's drawing, also output of C code, to a log."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_log_path
from rich.console import COLOR_SYSTEMS

from decoder.errors import ConfigError, quoted, require, shortened
from dynatui.files import to_append
from dynatui.terminal.driver import LARGEST
from dynatui.terminal.output import Output, wait_for_foreground
from dynatui.terminal.streams import read_keyboard

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LARGEST_LOG = 2**20
_DESCRIPTORS = 16
"""Number of files and pipes that a screen may open; a replay needs ten."""
_QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}


def silence_libraries() -> None:
    """Sets environment variables by which libraries print less, unless the user has set them."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def check_variables() -> None:
    """Raises ConfigError for values of environment variables that could make Textual fail."""
    colors = os.environ.get("TEXTUAL_COLOR_SYSTEM")
    remedy = f"unset it, or give one of auto, {', '.join(COLOR_SYSTEMS)}"
    known = colors in (None, "auto", *COLOR_SYSTEMS)
    require(known, f"TEXTUAL_COLOR_SYSTEM is {quoted(colors)}; {remedy}")
    for name, limit in zip(("COLUMNS", "LINES"), LARGEST, strict=True):
        value = os.environ.get(name, "")
        too_large = value.isdecimal() and (len(value) > len(str(limit)) or int(value) > limit)
        require(not too_large, f"{name} is {shortened(value)}; unset it, or give at most {limit}")
    log = os.environ.get("TEXTUAL_LOG")
    try:
        if log:
            to_append(Path(log)).close()
    except OSError as error:
        raise ConfigError(f"cannot write {shortened(log)}: {error.strerror}; unset TEXTUAL_LOG") from None


def check_descriptors() -> None:
    """Raises a ConfigError if the system permits fewer open files than a screen needs."""
    opened = list[int]()
    try:
        while len(opened) < _DESCRIPTORS:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise ConfigError(
            f"a screen needs {_DESCRIPTORS} further open files, but only {len(opened)} are possible "
            f"({error.strerror}); raise the limit with ulimit -n 256, or use --headless"
        ) from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def log_path(named: Path | None = None) -> Path:
    """Path of the log: `named`, else a default log, emptied if too large. Raises ConfigError if `named` is unusable."""
    if named is not None:
        try:
            _open_log(named)
        except OSError as error:
            fault = f"cannot write the log {shortened(named)}: {error.strerror}; name another file"
            raise ConfigError(fault, "log_file") from None
        return named
    try:
        path = user_log_path("dynatui", ensure_exists=True) / "dynatui.log"
        if _open_log(path) > _LARGEST_LOG:
            os.truncate(path, 0)
    except OSError:
        return Path(os.devnull)
    return path


@contextmanager
def screen_only(log: Path) -> Iterator[Output]:
    """Within the context, all output except the app's goes to the log, and standard input is the keyboard."""
    terminal = _STDERR if os.isatty(_STDERR) else _STDOUT
    wait_for_foreground(terminal)
    saved = {number: os.dup(number) for number in (_STDIN, _STDOUT, _STDERR)}
    names = sys.__stdout__, sys.__stderr__
    output = Output(terminal)
    noise = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        # Textual reads the terminal's size from sys.__stdout__, and draws on sys.__stderr__.
        sys.__stdout__ = sys.__stderr__ = output  # type: ignore[misc,assignment]
        os.dup2(noise, _STDOUT)
        os.dup2(noise, _STDERR)
        has_keyboard = os.isatty(_STDIN) or read_keyboard(_STDIN)
        require(has_keyboard, "standard input is no terminal and there is no other keyboard; use --headless")
        yield output
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)
        os.close(noise)
        sys.__stdout__, sys.__stderr__ = names  # type: ignore[misc]
        output.close()


def _open_log(path: Path) -> int:
    """Creates the log, readable for its owner only; returns its size. Raises OSError for a pipe, which could block."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISFIFO(status.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe")
        return status.st_size
    finally:
        os.close(descriptor)
