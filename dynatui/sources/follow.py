"""Source of a recording that another process is still writing, from its newest run on, without threads."""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from decoder.errors import RecordingError, shortened
from decoder.events import Event, Run
from dynatui.record.checks import Checker
from dynatui.record.recording import LONGEST_LINE
from dynatui.sources.source import Reader
from dynatui.state.run_state import Failure, Loading, Prompt

RUN = b'{"type":"run",'
_REMEDY = "give a file that --record writes"
_CHUNK = 2**20
_LINES_AT_ONCE = 1000
_BUDGET_S = 0.03
"""Seconds of a frame that may be used for reading; the rest is for drawing."""
_POLL_S = 0.1


class Tail:
    """Reads the newest and all later runs of a growing recording; an invalid or replaced file raises RecordingError."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.runs = 0
        """Number of runs from the beginning of the file to the last returned event."""
        self._clock = clock
        self._file = _opened(path)
        self._checker = Checker()
        self._newest: tuple[int, int, int] | None = (0, 0, 0)
        """Newest run found: (byte offset, lines before it, runs before it); None once this run is being read."""
        self._opened = False
        self._offset = self._lines = 0
        """Byte offset of the next line, and number of lines before it."""
        self._fault: RecordingError | None = None
        """Error that is raised once all events before it have been returned."""

    def take(self, seconds: float) -> list[Event]:
        until = self._clock() + seconds
        events = list[Event]()
        if self._fault is None:
            try:
                self._take(events, until)
            except RecordingError as error:
                self._fault = RecordingError(f"{shortened(self.path)}: {error}")
            except OSError as error:
                self._fault = RecordingError(f"cannot read {shortened(self.path)}: {error.strerror}; follow it again")
        if self._fault is not None and not events:
            raise self._fault
        return events

    def close(self) -> None:
        self._file.close()

    def _take(self, events: list[Event], until: float) -> None:
        self._look_after_the_file()
        while self._newest:
            self._newest = self._look_ahead(self._newest)
            if self._clock() >= until:
                return
        while line := self._next_line():
            if not line.strip():
                continue
            event = self._checker.event(line, self._lines)
            self.runs += isinstance(event, Run)
            events.append(event)
            if self._clock() >= until:
                return

    def _look_after_the_file(self) -> None:
        followed = os.fstat(self._file.fileno())
        try:
            present = self.path.stat()
        except FileNotFoundError:
            raise RecordingError("the file was removed while it was followed; follow the new file") from None
        if not os.path.samestat(present, followed):
            raise RecordingError("another file has taken the place of the followed file; follow the new file")
        if followed.st_size < self._offset:
            raise RecordingError("the file was cut off while it was followed; follow it again")

    def _look_ahead(self, newest: tuple[int, int, int]) -> tuple[int, int, int] | None:
        """Scans for the newest run; at the file's end, goes back to the newest run and returns None."""
        for _ in range(_LINES_AT_ONCE):
            begin, before = self._offset, self._lines
            line = self._next_line()
            if not line:
                self._offset, self._lines, self.runs = newest
                self._file.seek(self._offset)
                return None
            if not self._opened and line.strip():
                Checker().event(line, self._lines)
                self._opened = True
            if line.startswith(RUN):
                newest = begin, before, self.runs
                self.runs += 1
        return newest

    def _next_line(self) -> bytes:
        """The next line; empty while the file has no further complete line."""
        line = self._file.readline(LONGEST_LINE + 1)
        if line.endswith(b"\n"):
            self._offset += len(line)
            self._lines += 1
            return line
        if len(line) > LONGEST_LINE:
            fault = f"line {self._lines + 1} is longer than any event"
            raise RecordingError(f"{fault}; follow a file that --record writes")
        self._file.seek(0, os.SEEK_END)  # empties the buffer, since the writer may still cut off this incomplete line
        self._file.seek(self._offset)
        return b""


class FollowSource(Reader):
    playback = None
    speed = 1.0

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.records.append(Loading(f"waiting for events in {shortened(path)}"))
        self._tail: Tail | None = Tail(path)
        self._path = path

    def advance(self, now: float) -> None:
        del now
        if self._tail is None or self.paused:
            return
        try:
            added = self._tail.take(_BUDGET_S)
        except RecordingError as error:
            self._fail(error)
            return
        number = self._tail.runs - sum(isinstance(event, Run) for event in added)
        for event in added:
            if isinstance(event, Run):
                number += 1
                self.records.append(Prompt(event.prompt_number or number, event.prompt_count or number))
            self.records.append(event)

    def set_speed(self, speed: float) -> None: ...

    def go(self, step: int) -> None:
        """Follows the file again after an error; `step` has no effect, since the writer chooses the runs."""
        del step
        if self._tail is None:
            try:
                self._tail = Tail(self._path)
            except RecordingError as error:
                self._fail(error)

    def close(self, timeout_s: float) -> bool:
        if self._tail is not None:
            self._tail.close()
        self._tail = None
        return super().close(timeout_s)

    def _fail(self, error: RecordingError) -> None:
        self.close(0.0)
        self.records.append(Failure(str(error), error.exit_code))


def events(path: Path, stop: threading.Event) -> Iterator[Event]:
    """Events from the newest run on; the file may grow at any time, so only `stop` or closing ends the iterator."""
    with closing(Tail(path)) as tail:
        while not stop.is_set():
            added = tail.take(_BUDGET_S)
            yield from added
            if not added:
                stop.wait(_POLL_S)


def _opened(path: Path) -> BinaryIO:
    """Opens a file for reading; raises RecordingError for a pipe or device, which could block or never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RecordingError(f"cannot follow {shortened(path)}: {error.strerror}; {_REMEDY}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordingError(f"cannot follow {shortened(path)}: it is not a file; {_REMEDY}")
    return os.fdopen(descriptor, "rb", _CHUNK)
