"""Reads recordings that may exceed the memory. Of runs, a scan finds where each begins; an access decodes one run.
Events of a server, which may be watched for days, are read line by line.
"""

import gc
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast, overload
from weakref import finalize

from decoder.errors import RecordingError, shortened
from decoder.events import Event, Run
from decoder.prompt import AnyPrompt
from dynatui.files import opened
from dynatui.record.checks import Checker, other_form
from dynatui.record.recording import LONGEST_LINE, RUNS, Form, opening_line
from dynatui.servers.attach import events as server
from dynatui.state.session_log import prompt_of

_RUN = re.compile(rb'\{\s*"type"\s*:\s*"run"')
_CHUNK = 2**20
_IN_MEMORY = 2**24
"""Largest size in bytes of a pipe's copy in memory; a larger copy is a temporary file."""


@dataclass(frozen=True)
class _Span:
    """Byte range of a run, and the number of lines before it."""

    begin: int
    end: int
    lines: int


class Runs(Sequence[list[Event]]):
    """The runs that a recording contains when it is opened; a pipe is copied to memory or to a temporary file.

    Raises RecordingError if the file cannot be read or contains no event, and on access to an invalid run.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with ExitStack() as unless_opened:
                self._file = _rewound(path, unless_opened)
                self._spans = tuple(_spans(path, self._file))
                unless_opened.pop_all()
        except OSError as error:
            raise _unreadable(path, error) from None
        finalize(self, self._file.close)

    def __len__(self) -> int:
        return len(self._spans)

    def prompt(self, number: int) -> AnyPrompt:
        """The run's prompt, decoded from its first line alone; empty if this line is invalid."""
        try:
            self._file.seek(self._spans[number].begin)
            first = RUNS.event_on(self._file.readline(LONGEST_LINE))
        except OSError as error:
            raise _unreadable(self._path, error) from None
        return prompt_of(first) if isinstance(first, Run) else ""

    @overload
    def __getitem__(self, number: int) -> list[Event]: ...
    @overload
    def __getitem__(self, number: slice) -> list[list[Event]]: ...
    def __getitem__(self, number: int | slice) -> list[Event] | list[list[Event]]:
        if isinstance(number, slice):
            return [self[place] for place in range(len(self))[number]]
        span = self._spans[number]
        try:
            self._file.seek(span.begin)
            text = self._file.read(span.end - span.begin)
        except OSError as error:
            raise _unreadable(self._path, error) from None
        if len(text) < span.end - span.begin:
            raise RecordingError(f"{shortened(self._path)} was cut off while it was shown; open it again")
        with _uncollected():
            events = list(_events(self._path, iter(partial(BytesIO(text).readline, LONGEST_LINE), b""), span.lines))
        second = next((place for place, event in enumerate(events[1:], 2) if isinstance(event, Run)), None)
        if second is not None:
            where, begins = f"{shortened(self._path)}: line {span.lines + second}", """'{"type":"run"'"""
            remedy = "give a file that --record has written"
            raise RecordingError(f"{where} starts a run, but does not begin with {begins}; {remedy}")
        return events


def read_events(path: Path) -> list[Event]:
    return list(chain.from_iterable(Runs(path)))


def _rewound(path: Path, closing: ExitStack) -> BinaryIO:
    file = closing.enter_context(opened(path))
    opening = opening_line(file)
    if form := other_form(opening):
        raise RecordingError(f"{shortened(path)}: {form}")
    if not list(_events(path, iter([opening] if opening else []))):
        raise RecordingError(f"{shortened(path)} holds no complete event; give a file that --record has written")
    if file.seekable():
        file.seek(0)
        return file
    copy = closing.enter_context(SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - closed by the ExitStack
    copy.write(opening)
    shutil.copyfileobj(file, copy, _CHUNK)
    file.close()
    copy.seek(0)
    return cast("BinaryIO", copy)


def _spans(path: Path, file: BinaryIO) -> Iterator[_Span]:
    """Byte ranges of the runs in order, without an incomplete line at the end."""
    begin = before = place = 0
    for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b"")):
        if not line.endswith(b"\n"):
            if len(line) >= LONGEST_LINE:
                raise _too_long(path, number + 1)
            if line.strip() and not RUNS.event_on(line):
                break
        if place and _RUN.match(line):
            yield _Span(begin, place, before)
            begin, before = place, number
        place += len(line)
    yield _Span(begin, place, before)


def _events(path: Path, lines: Iterator[bytes], before: int = 0) -> Iterator[Event]:
    """Checked events, without blank lines and an incomplete last line. `before`: number of lines before `lines`."""
    checker = Checker()
    for number, line in enumerate(lines, before + 1):
        if not line.strip():
            continue
        if not line.endswith(b"\n") and not RUNS.event_on(line):
            if len(line) < LONGEST_LINE:
                return
            raise _too_long(path, number)
        try:
            yield checker.event(line, number)
        except RecordingError as error:
            raise RecordingError(f"{shortened(path)}: {error}") from None


def _too_long(path: Path, number: int) -> RecordingError:
    fault = f"line {number} is longer than any event"
    return RecordingError(f"{shortened(path)}: {fault}; give a file that --record has written")


def _unreadable(path: Path, error: OSError) -> RecordingError:
    return RecordingError(f"cannot read {shortened(path)}: {error.strerror}; give a file that --record has written")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disables garbage collection, which would take most of the time and free nothing: all events are still in use."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


SERVERS = Form("recording of a server", server.Opening, server.decode_line)


def is_of_server(path: Path) -> bool:
    """Whether the file begins like a recording of a server; False for a pipe, which can be read only once."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return server.is_opening(opening_line(file))
    return False


def server_events(path: Path) -> Iterator[server.Event]:
    """The events up to the last complete line; raises RecordingError for an unreadable file or an invalid line."""
    name, newest = shortened(path), None
    try:
        with opened(path) as file:
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
                if not line.strip():
                    continue
                if not line.endswith(b"\n") and not SERVERS.event_on(line):
                    return
                event = server.decode_line(line, number)
                newest = _in_order(event, newest, number)
                yield event
    except OSError as error:
        remedy = "give a file that dynatui attach --record has written"
        raise RecordingError(f"cannot read {name}: {error.strerror}; {remedy}") from None
    except RecordingError as error:
        raise RecordingError(f"{name}: {error}") from None


def _in_order(event: server.Event, newest: float | None, number: int) -> float:
    """Time of the event; raises RecordingError if it is below `newest`, or if no session has begun (`newest`: None)."""
    if isinstance(event, server.Opening):
        return 0.0
    if newest is None:
        raise RecordingError(f"line {number}: an event comes before any session; the beginning of the file is missing")
    if event.t < newest:
        before = f"but the event before it is at {newest:g} s"
        raise RecordingError(f"line {number}: the event is at {event.t:g} s, {before}")
    return event.t
