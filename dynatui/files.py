"""Opens and writes files named by users. A pipe that no other process opens causes an error within seconds."""

import errno
import os
import select
import stat
import time
from contextlib import suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from decoder.errors import ConfigError

PATIENCE_S = 2.0
"""Longest wait, in seconds, for a process at the other end of a pipe."""
_LOOK_UP_S = 0.02


def opened(path: Path) -> BinaryIO:
    """Opens a file for reading. If it is a pipe without a writer, its `read` raises OSError after `PATIENCE_S`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return cast("BinaryIO", BufferedReader(_Pipe(descriptor)))
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def text_of(file: BinaryIO, name: str, most: int, *, too_large: str) -> str:
    """Reads UTF-8 text. Raises OSError, and ConfigError for another encoding or a file larger than `most` bytes."""
    content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{name} is larger than {most >> 20} MiB, {too_large}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        remedy = "convert it, with iconv for example"
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start + 1}); {remedy}") from None


def to_append(path: Path) -> BinaryIO:
    """Opens a file for appending, without a buffer; raises an OSError for a pipe without a reader."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "ab", buffering=0)


def write_whole(path: Path, content: bytes, *, mode: int | None = None, replace: bool = True) -> None:
    """Writes a file completely or not at all, however the program ends; `mode`: permissions; None: by the umask.

    Raises OSError; FileExistsError if the file exists and `replace` is false.
    """
    new = path.with_name(f".{os.getpid()}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        if replace:
            new.replace(path)
        else:
            path.hardlink_to(new)  # fails if another process has made this file in the meantime
    finally:
        with suppress(OSError):  # if the folder is no longer writable, deletion fails as well
            new.unlink(missing_ok=True)


def pipe_to_write(path: Path) -> int:
    """Opens a pipe for writing; raises an OSError if no process opens it for reading within `PATIENCE_S`."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until_s:
                raise OSError(errno.ENXIO, "no process reads this pipe") from None
        time.sleep(_LOOK_UP_S)
    os.set_blocking(descriptor, True)
    return descriptor


class _Pipe(RawIOBase):
    """A pipe whose first read waits for a writer, at most until `PATIENCE_S` after the pipe was opened."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_writer = False
        self._until_s = time.monotonic() + PATIENCE_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]  # collections.abc.Buffer is new in Python 3.12
        while True:
            try:
                read = os.readv(self._descriptor, [buffer])
            except BlockingIOError:  # a writer has opened the pipe, and may be slow
                self._has_writer = True
                select.select([self._descriptor], [], [])
                continue
            self._has_writer |= read > 0
            if self._has_writer:
                return read
            if time.monotonic() > self._until_s:
                raise OSError(errno.EPIPE, "no process writes to this pipe")
            time.sleep(_LOOK_UP_S)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()
