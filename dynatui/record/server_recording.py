"""Reads recordings of servers line by line, since a session may last for days."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from decoder.errors import RecordingError, shortened
from dynatui.files import opened
from dynatui.record.recording import LONGEST_LINE, Form, opening_line
from dynatui.servers.attach.events import Event, Opening, decode_line, is_opening

SERVERS = Form("recording of a server", Opening, decode_line)


def is_of_server(path: Path) -> bool:
    """Whether the file begins like a recording of a server; False for a pipe, which can be read only once."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return is_opening(opening_line(file))
    return False


def events(path: Path) -> Iterator[Event]:
    """The events up to the last complete line; raises RecordingError for an unreadable file or an invalid line."""
    name, newest = shortened(path), None
    try:
        with opened(path) as file:
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
                if not line.strip():
                    continue
                if not line.endswith(b"\n") and not SERVERS.event_on(line):
                    return
                event = decode_line(line, number)
                newest = _in_turn(event, newest, number)
                yield event
    except OSError as error:
        remedy = "give a file that dynatui attach --record has written"
        raise RecordingError(f"cannot read {name}: {error.strerror}; {remedy}") from None
    except RecordingError as error:
        raise RecordingError(f"{name}: {error}") from None


def _in_turn(event: Event, newest: float | None, number: int) -> float:
    """Time of the event; raises RecordingError if it is below `newest`, or if no session has begun (`newest`: None)."""
    if isinstance(event, Opening):
        return 0.0
    if newest is None:
        raise RecordingError(f"line {number}: an event comes before any session; the beginning of the file is missing")
    if event.t < newest:
        before = f"but the event before it is at {newest:g} s"
        raise RecordingError(f"line {number}: the event is at {event.t:g} s, {before}")
    return event.t
