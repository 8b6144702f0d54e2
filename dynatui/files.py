"""Files that users name: a pipe with nobody at its other end holds the program up for a moment only.

Knows nothing of what the files hold.
"""

import errno
import os
import select
import stat
import time
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from decoder.errors import DecoderError

PATIENCE_S = 2.0
"""How long a pipe may be without a writer before its first one."""
_LOOK_UP_S = 0.02


def opened(path: Path) -> BinaryIO:
    """A file, a device or a pipe to read; raises an OSError, while it is read too, if nobody writes to the pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return cast("BinaryIO", BufferedReader(_Pipe(descriptor)))
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def text_of(file: BinaryIO, name: str, most: int, *, too_large: str, fault: type[DecoderError]) -> str:
    """What a file holds as UTF-8 text, without a byte order mark.

    Raises:
        DecoderError: Of the type `fault`: it has more than `most` bytes, for which `too_large` says what to do, or it
            is no text.
        OSError: It cannot be read.
    """
    content = file.read(most + 1)
    if len(content) > most:
        raise fault(f"{name} is larger than {most >> 20} MiB, {too_large}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = error.start + 1
        raise fault(f"{name} is not UTF-8 text (byte {at}); convert it, with iconv for example") from None


def to_append(path: Path) -> BinaryIO:
    """A file, device or pipe to which every write is added at once; raises an OSError if nobody reads the pipe."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "ab", buffering=0)


class _Pipe(RawIOBase):
    """A pipe whose first writer is waited for, but not for ever."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_writer = False
        self._until_s = time.monotonic() + PATIENCE_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]  # Python 3.11 cannot spell a buffer
        while True:
            try:
                read = os.readv(self._descriptor, [buffer])
            except BlockingIOError:  # there is a writer, who may take his time
                self._has_writer = True
                select.select([self._descriptor], [], [])
                continue
            self._has_writer |= read > 0
            if self._has_writer:
                return read
            if time.monotonic() > self._until_s:
                raise OSError(errno.EPIPE, "nobody writes to this pipe")
            time.sleep(_LOOK_UP_S)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()
