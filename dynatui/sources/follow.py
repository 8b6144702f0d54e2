"""A recording that another process is still writing, watched as it grows: the third source of records.

Whoever comes late sees the newest run: what is before it is only passed over. A last line without its end is waited
for, since its writer may be in the middle of it, or have been killed there and cut it off later. Nothing here has a
thread, and no call takes much longer than the time that it is given.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from decoder.errors import RecordingError, shortened
from decoder.events import Event, Run
from dynatui.record.checks import Checker
from dynatui.record.recording import LONGEST_LINE
from dynatui.state.run_state import Failure, Loading, Prompt, Record

RUN = b'{"type":"run",'
"""How the line of a run begins."""
_CHUNK = 2**20
_BUDGET_S = 0.03
"""Of a frame: what is left of it is for drawing."""
_POLL_S = 0.1


class Tail:
    """Reads the complete events of a growing file, from its newest run on.

    Raises:
        RecordingError: The file is not there, is no recording, or was cut off or replaced since; from `take` too.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.runs = 0
        """How many runs the file has up to the last event that was taken."""
        self._clock = clock
        self._file = _opened(path)
        self._checker = Checker()
        self._ahead: int | None = 0
        """How far the newest run has been looked for; None once it is found."""
        self._lines_ahead = self._runs_ahead = 0
        self._offset = self._lines = 0
        """Where the next line begins, and how many are before it."""
        self._fault: RecordingError | None = None
        """What was wrong, to be told after what was taken before it."""
        self._chunk = b""
        self._at = 0
        """Where the next line begins in what has been read of it."""

    def take(self, seconds: float) -> list[Event]:
        """What was added since the last call, or as much of it as can be read in this time."""
        until = self._clock() + seconds
        taken = list[Event]()
        if self._fault is None:
            try:
                self._take(taken, until)
            except RecordingError as error:
                self._fault = RecordingError(f"{shortened(self.path)}: {error}")
            except OSError as error:
                self._fault = RecordingError(f"cannot read {shortened(self.path)}: {error.strerror}; follow it again")
        if self._fault is not None and not taken:
            raise self._fault
        return taken

    def close(self) -> None:
        """Lets go of the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _take(self, taken: list[Event], until: float) -> None:
        """Adds to what was taken, until there is no more, the time is up or something is wrong."""
        self._look_after_the_file()
        while self._ahead is not None:
            self._look_for_the_newest_run(self._ahead)
            if self._clock() >= until:
                return
        while line := self._next_line():
            event = self._checker.event(line, self._lines)
            self.runs += isinstance(event, Run)
            taken.append(event)
            if self._clock() >= until:
                return

    def _look_after_the_file(self) -> None:
        followed = os.fstat(self._file)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            raise RecordingError("the file was removed while it was followed; follow the new one") from None
        if not os.path.samestat(there, followed):
            raise RecordingError("another file has taken the place of the one that was followed; follow it again")
        if followed.st_size < max(self._offset, self._ahead or 0):
            raise RecordingError("the file was cut off while it was followed; follow it again")

    def _look_for_the_newest_run(self, begin: int) -> None:
        """Looks through one chunk of whole lines; after the last one, reading begins at the newest run."""
        chunk = self._read(begin, self._lines_ahead)
        lines = chunk[: chunk.rfind(b"\n") + 1]
        if not lines:
            self._ahead = None
            return
        if begin == 0:
            Checker().event(lines[: lines.index(b"\n") + 1], 1)
        place = 0 if lines.startswith(RUN) else -1
        self._runs_ahead += lines.startswith(RUN) + lines.count(b"\n" + RUN)
        place = max(place, lines.rfind(b"\n" + RUN) + 1 or -1)
        if place >= 0:
            self._offset = begin + place
            self._lines = self._lines_ahead + lines.count(b"\n", 0, place)
            self.runs = self._runs_ahead - 1
        self._lines_ahead += lines.count(b"\n")
        self._ahead = begin + len(lines)

    def _next_line(self) -> bytes:
        """The next complete line; nothing while there is none."""
        end = self._chunk.find(b"\n", self._at) + 1
        if not end:
            self._chunk, self._at = self._read(self._offset, self._lines), 0
            end = self._chunk.find(b"\n") + 1
        line = self._chunk[self._at : end] if end else b""
        self._at += len(line)
        self._offset += len(line)
        self._lines += bool(line)
        return line

    def _read(self, begin: int, before: int) -> bytes:
        """What is there from a place on, `before` lines in: at least a whole line unless its end is not written."""
        size = _CHUNK
        while True:
            chunk = os.pread(self._file, size, begin)
            if len(chunk) < size or b"\n" in chunk:
                return chunk
            if size > LONGEST_LINE:
                raise RecordingError(f"line {before + 1}: longer than any event; follow a file that --record writes")
            size *= 2


class FollowSource:
    """Shows the newest run of a growing recording, and those that follow it."""

    controls = None
    playback = None
    recorded = None
    speed = 1.0

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = [Loading(f"waiting for what is written to {shortened(path)}")]
        self.paused = False
        self._tail: Tail | None = Tail(path)
        self._path = path

    def start(self) -> None:
        """Nothing: `advance` does the work."""

    def advance(self, now: float) -> None:
        """Appends what was written since, as far as there is time."""
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

    def set_speed(self, speed: float) -> None:
        """Nothing: it is as fast as what is followed."""

    def set_paused(self, *, paused: bool) -> None:
        """Holds the view, or catches up."""
        self.paused = paused

    def go(self, step: int) -> None:
        """Follows the file again after an error; the runs are chosen by their writer."""
        del step
        if self._tail is None:
            try:
                self._tail = Tail(self._path)
            except RecordingError as error:
                self._fail(error)

    def stop(self) -> None:
        """Nothing runs by itself."""

    def close(self, timeout_s: float) -> bool:
        """Lets go of the file."""
        del timeout_s
        if self._tail is not None:
            self._tail.close()
        self._tail = None
        return True

    def _fail(self, error: RecordingError) -> None:
        self.close(0.0)
        self.records.append(Failure(str(error), error.exit_code))


def events(path: Path, stop: threading.Event) -> Iterator[Event]:
    """The events of a growing recording, from its newest run on, as they are written.

    Nobody can know that a file will grow no more, so this ends only when `stop` is set or its reader leaves.

    Raises:
        RecordingError: The file is not there, is no recording, or was cut off or replaced.
    """
    with closing(Tail(path)) as tail:
        while not stop.is_set():
            added = tail.take(_BUDGET_S)
            yield from added
            if not added:
                stop.wait(_POLL_S)


def _opened(path: Path) -> int:
    """The file's descriptor; whatever is no file is refused, since it could block or never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RecordingError(
            f"cannot follow {shortened(path)}: {error.strerror}; give a file that --record writes"
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordingError(f"cannot follow {shortened(path)}: it is no file; give one that --record writes")
    return descriptor
