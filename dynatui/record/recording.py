"""Recordings on disk: events appended as they happen (`dynatui.record.reader` reads them back).

A recording must survive a crash of its writer, so every line goes to the system at once, and what an interrupted write
left behind is cut off by the next writer. Nothing that is complete is ever overwritten. Knows no models and no screens.
"""

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
from typing import Self

from msgspec import structs

from decoder.errors import DecoderError, RecordingError, shortened
from decoder.events import Base, Event, Run, decode_line, encode

LONGEST_LINE = 64 * 2**20
"""Bytes; no event comes near it, and a file without line ends must not fill the memory."""
_PATIENCE_S = 0.5


def event_on(line: bytes) -> Event | None:
    """The event on a line, whatever comes before it; None where the line holds no whole one."""
    try:
        return decode_line(line, 0)
    except RecordingError:
        return None


@dataclass(frozen=True)
class Form:
    """The lines of a recording."""

    name: str
    opening: type[Base]
    """The event that it begins with."""
    event_on: Callable[[bytes], Base | None]
    """The event on a line; None where the line holds no whole one."""


RUNS = Form("recording", Run, event_on)


class Recorder:
    """Appends events to a file that is new, empty or a recording already; only its owner can read a new one.

    The file is locked against other writers until it is closed, and begins with what a run in progress has told so far.

    Raises:
        RecordingError: The file cannot be written, is locked or is something else; from `write` too: the disk is full.
    """

    def __init__(self, path: Path, so_far: Iterable[Base] = (), form: Form = RUNS) -> None:
        self.path = path
        self._form = form
        self._ended = False
        self._writing = threading.Lock()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file = FileIO(descriptor, "r+")
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    _lock(descriptor, path)
                    self._continue()
                self._append(b"".join(map(encode, so_far)))
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            raise _unwritable(path, error) from None

    def write(self, event: Base) -> None:
        """Adds one line, which is out of this process when the call returns; nothing to a recording that has ended."""
        with self._writing:
            try:
                self._append(encode(event))
            except OSError as error:
                raise _unwritable(self.path, error) from None
            finally:
                if self._ended:
                    self._file.close()

    def close(self) -> None:
        """Ends the recording; a second call does nothing.

        While another thread writes a line, this waits for a moment only: a pipe without a reader never takes it.
        """
        self._ended = True
        if self._writing.acquire(timeout=_PATIENCE_S):
            self._file.close()
            self._writing.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, lines: bytes) -> None:
        rest = memoryview(lines)
        while rest and not self._ended:
            rest = rest[self._file.write(rest) or 0 :]

    def _continue(self) -> None:
        """Sees to it that the next line begins a line; refuses a file of another kind."""
        with self.path.open("rb") as file:
            opening = file.readline(LONGEST_LINE)
            if not opening:
                return
            if not opening.endswith(b"\n") or not isinstance(self._form.event_on(opening), self._form.opening):
                raise RecordingError(
                    f"{shortened(self.path)} exists and is no {self._form.name}, so it stays as it is; "
                    "give --record a new name",
                    "record",
                )
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LONGEST_LINE))
            torn = file.read().rpartition(b"\n")[2]
        if torn and self._form.event_on(torn):
            self._file.write(b"\n")
        elif torn:
            self._file.truncate(size - len(torn))


def numbered_run(event: Event, number: int, count: int) -> Event:
    """The event; a run is told as prompt `number` of `count`."""
    return structs.replace(event, prompt_number=number, prompt_count=count) if isinstance(event, Run) else event


def recordings_folder() -> Path:
    """Where recordings go that were begun by a key, for their owner alone; raises a RecordingError if it cannot be."""
    from platformdirs import user_state_path  # noqa: PLC0415 - whoever names each recording can do without

    folder = user_state_path("dynatui") / "recordings"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return folder


def new_recording_path(now: datetime | None = None) -> Path:
    """An empty file for a new recording, named after the local time; raises a RecordingError if it cannot be made."""
    stem = f"{now or datetime.now().astimezone():%Y%m%d-%H%M%S}"
    make = partial(Path.touch, mode=0o600, exist_ok=False)
    return first_free(recordings_folder(), stem, ".jsonl", make, _unwritable)


def first_free(
    folder: Path, stem: str, suffix: str, make: Callable[[Path], None], fault: Callable[[Path, OSError], DecoderError]
) -> Path:
    """Something new, made under the first name that is free: the second has a 2; raises `fault` where it cannot be."""
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
    """Refuses a second writer; some network file systems know no locks, and there nobody is refused."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fault = f"another process is writing {shortened(path)}; give --record another file"
        raise RecordingError(fault, "record") from None
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
            raise


def _unwritable(path: Path, error: OSError) -> RecordingError:
    return RecordingError(
        f"cannot write {shortened(path)}: {error.strerror}; give --record a file in a folder with free space",
        "record",
    )
