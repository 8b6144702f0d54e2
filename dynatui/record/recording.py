"""Writes recordings that survive a crash: each line is written at once; the next writer removes an incomplete line."""

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import FileIO
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO, Self

from msgspec import structs

from decoder.errors import DecoderError, RecordingError, shortened
from decoder.events import Base, Event, Run, decode_line, encode
from dynatui.files import pipe_to_write

LONGEST_LINE = 64 * 2**20
"""Maximum size of a line in bytes, so that a file without line ends cannot fill the memory; events are far smaller."""
_PATIENCE_S = 0.5


@dataclass(frozen=True)
class Form:
    name: str
    opening: type[Base]
    decode_line: Callable[[bytes, int], Base]
    """Arguments: a line and its number, for messages. Raises RecordingError if the line is invalid."""

    def event_on(self, line: bytes) -> Base | None:
        """The line's event, decoded independently of other lines; None if the line is incomplete or invalid."""
        try:
            return self.decode_line(line, 0)
        except RecordingError:
            return None

    def opens(self, line: bytes) -> bool:
        return isinstance(self.event_on(line), self.opening)

    def is_torn_opening(self, line: bytes) -> bool:
        """Whether the line is an opening event that was cut off, as after a crash."""
        beginning = b'{"type":"%s",' % str(self.opening.__struct_config__.tag).encode()
        return not line.endswith(b"\n") and line.startswith(beginning[: len(line)])


RUNS = Form("recording", Run, decode_line)


def opening_line(file: BinaryIO) -> bytes:
    """The first line that is not blank; empty if there is none."""
    return next((line for line in iter(partial(file.readline, LONGEST_LINE), b"") if line.strip()), b"")


class Recorder:
    """Appends events to a recording and locks it against other writers; a new file can be read only by its owner.

    `so_far`, the earlier events of a run in progress, is written first. Raises RecordingError, also in `write` and at
    the end of the context, if the file cannot be written, is locked, is not a recording, or is a pipe without a reader.
    """

    def __init__(self, path: Path, so_far: Iterable[Base] = (), form: Form = RUNS) -> None:
        self.path = path
        self._form = form
        self._ended = False
        self._closed = False
        self._writing = threading.Lock()
        self._least_size: int | None = None
        """Size in bytes after the last write; a smaller file was shortened. None: closed, or not a regular file."""
        self._lost = ""
        """Why the recording is lost, as found when the file was closed; empty if it is not lost."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISFIFO(mode):
                os.close(descriptor)  # it is open for reading too, so it would count as a reader
                descriptor = pipe_to_write(path)
            os.set_blocking(descriptor, True)
            self._descriptor = descriptor
            self._file = FileIO(descriptor, "w" if stat.S_ISFIFO(mode) else "r+")
            try:
                if stat.S_ISREG(mode):
                    _lock(descriptor, path)
                    self._continue()
                    self._least_size = os.fstat(descriptor).st_size
                self._append(b"".join(map(encode, so_far)))
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            raise _unwritable(path, error) from None

    def write(self, event: Base) -> None:
        """Passes the event's line to the operating system, without a buffer; after `close`, writes nothing."""
        with self._writing:
            try:
                if lost := self._why_lost():
                    raise RecordingError(lost, "record")
                self._append(encode(event))
            except OSError as error:
                raise _unwritable(self.path, error) from None
            finally:
                if self._ended:
                    self._close_file()

    def close(self) -> None:
        """Waits at most `_PATIENCE_S` for a write of another thread, since a write to an unread pipe never ends."""
        self._ended = True
        if self._writing.acquire(timeout=_PATIENCE_S):
            self._close_file()
            self._writing.release()

    def _close_file(self) -> None:
        if not self._closed:
            self._closed = True
            self._lost = self._lost or self._why_lost()
            self._least_size = None
            self._file.close()

    def require_kept(self) -> None:
        """Raises a RecordingError if another program deleted or shortened the file before it was closed."""
        if self._lost:
            raise RecordingError(self._lost, "record")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self.require_kept()

    def _append(self, lines: bytes) -> None:
        unwritten = memoryview(lines)
        while unwritten and not self._ended:
            unwritten = unwritten[self._file.write(unwritten) or 0 :]
        if self._least_size is not None:
            self._least_size += len(lines) - len(unwritten)

    def _why_lost(self) -> str:
        if self._least_size is None:
            return ""
        file = os.fstat(self._descriptor)
        if file.st_nlink == 0:
            return f"{shortened(self.path)} was deleted while it was written, so nothing is recorded; record again"
        if file.st_size < self._least_size:
            return (
                f"{shortened(self.path)} was shortened by another program while it was written, so its events are "
                "lost; record again, and exclude recordings from the rotation of logs"
            )
        return ""

    def _continue(self) -> None:
        """Cuts off an incomplete last line; raises a RecordingError if the file is not a recording of this form."""
        with self.path.open("rb") as file:
            opening = opening_line(file)
            if not opening:
                return
            if not (self._form.opens(opening) or self._form.is_torn_opening(opening)):
                fault = f"{shortened(self.path)} exists and is not a {self._form.name}, so it is not changed"
                raise RecordingError(f"{fault}; give --record a new name", "record")
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LONGEST_LINE))
            torn = file.read().rpartition(b"\n")[2]
        if torn and self._form.event_on(torn):
            self._file.write(b"\n")
        elif torn:
            self._file.truncate(size - len(torn))


def numbered_run(event: Event, number: int, count: int) -> Event:
    return structs.replace(event, prompt_number=number, prompt_count=count) if isinstance(event, Run) else event


def recordings_folder() -> Path:
    """Private folder for recordings that are started with a key; raises RecordingError if it cannot be made."""
    from platformdirs import user_state_path  # noqa: PLC0415 - not needed if the user names the recording

    folder = user_state_path("dynatui") / "recordings"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return folder


def new_recording_path(now: datetime | None = None) -> Path:
    stem = f"{now or datetime.now().astimezone():%Y%m%d-%H%M%S}"
    make = partial(Path.touch, mode=0o600, exist_ok=False)
    return first_free(recordings_folder(), stem, ".jsonl", make, _unwritable)


def first_free(
    folder: Path, stem: str, suffix: str, make: Callable[[Path], None], fault: Callable[[Path, OSError], DecoderError]
) -> Path:
    """Makes a file or folder with the first free name: stem, stem-2, stem-3, ...; `fault` converts any other error."""
    for path in chain([folder / f"{stem}{suffix}"], (folder / f"{stem}-{number}{suffix}" for number in count(2))):
        try:
            make(path)
        except FileExistsError:
            continue
        except OSError as error:
            raise fault(path, error) from None
        return path
    raise AssertionError("names never run out")


def _lock(descriptor: int, path: Path) -> None:
    """Locks the file, if its file system has locks; raises RecordingError if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fault = f"another process is writing {shortened(path)}; give --record another file"
        raise RecordingError(fault, "record") from None
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
            raise


def _unwritable(path: Path, error: OSError) -> RecordingError:
    if error.errno == errno.EPIPE:
        return RecordingError(f"the process that read {shortened(path)} has ended; give --record a file", "record")
    if error.errno == errno.ENXIO:
        remedy = "start the process that reads it first, or give --record a file"
    else:
        remedy = "give --record a file in a folder with free space"
    return RecordingError(f"cannot write {shortened(path)}: {error.strerror}; {remedy}", "record")
