"""Opens files named by users; a pipe without a process at its other end causes an error within seconds."""

import errno
import os
import select
import stat
import time
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from decoder.errors import ConfigError

PATIENCE_S = 2.0
"""Longest wait for the first writer of a pipe."""
_LOOK_UP_S = 0.02


def opened(path: Path) -> BinaryIO:
    """Opened for reading; reading a pipe that gets no writer in time raises an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return cast("BinaryIO", BufferedReader(_Pipe(descriptor)))
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def text_of(file: BinaryIO, name: str, most: int, *, too_large: str) -> str:
    """Without a byte order mark; raises ConfigError, with the remedy `too_large` if larger than `most`, and OSError."""
    content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{name} is larger than {most >> 20} MiB, {too_large}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        remedy = "convert it, with iconv for example"
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start + 1}); {remedy}") from None


def to_append(path: Path) -> BinaryIO:
    """Opened to append without a buffer; raises an OSError if a pipe has no reader."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "ab", buffering=0)


def pipe_to_write(path: Path) -> int:
    """Descriptor of a pipe; raises an OSError if no process reads it in time; so does a write after its end."""
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
    """Its first read waits up to `PATIENCE_S` for a writer."""

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
