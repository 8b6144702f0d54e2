"""A live server is read in a thread that passes on every event; a recorded one is played at its original pace."""

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from decoder.errors import RecordingError
from dynatui.record.recording import Recorder
from dynatui.record.server_recording import SERVERS, events
from dynatui.servers.attach.events import Event
from dynatui.sources.server import LiveServer, Pause, RecordedServer
from tests.dynatui.servers.attach.scripted_session import FIRST, OPENING, SERVER, reading, session

PATIENCE_S = 20.0


def telling(told: list[Event], *, then: Exception | None = None) -> Callable[[Pause], Generator[Event]]:
    def watch(pause: Pause) -> Generator[Event]:
        yield from told
        if then:
            raise then
        pause(0.0)

    return watch


def all_of(source: LiveServer) -> list[Event]:
    taken, until = list[Event](), time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        over = source.ended
        taken += source.take()
        if over:
            return taken
    raise AssertionError("it never ended")


def test_what_is_handed_out_is_recorded_first(tmp_path: Path) -> None:
    path = tmp_path / "server.jsonl"
    source = LiveServer(telling(session(5)), Recorder(path, form=SERVERS))
    source.start()
    assert all_of(source) == session(5)
    source.close(1.0)
    assert list(events(path)) == session(5)


@pytest.mark.parametrize("error", [RecordingError("the disk is full"), ZeroDivisionError("a fault of our own")])
def test_what_ends_the_thread_is_raised_after_what_came_before_it(error: Exception) -> None:
    source = LiveServer(telling([OPENING, SERVER], then=error))
    source.start()
    source._thread.join(PATIENCE_S)
    assert source.take() == [OPENING, SERVER]
    with pytest.raises(type(error), match=str(error)):
        source.take()


def test_a_thread_that_waits_or_was_never_started_ends_when_it_is_asked_to() -> None:
    waiting = threading.Event()

    def watch(pause: Pause) -> Generator[Event]:
        yield OPENING
        waiting.set()
        pause(1e6)

    source = LiveServer(watch)
    source.start()
    assert waiting.wait(PATIENCE_S)
    assert source.close(PATIENCE_S)
    assert LiveServer(telling([])).close(0.1)


def test_a_recording_is_played_at_its_pace_times_the_speed() -> None:
    now = 10.0
    source = RecordedServer(session(10), speed=2.0, clock=lambda: now)
    assert source.take() == [OPENING, SERVER, FIRST]
    now += 1.0
    assert [event.t for event in source.take() if event is not OPENING] == [1.0, 2.0]  # type: ignore[union-attr]
    source.paused = True
    now += 100.0
    assert source.take() == []
    source.paused = False
    assert source.take() == []
    now += 0.5
    assert source.take() == session(10)[5:6]
    now += 100.0
    assert source.take() == session(10)[6:]
    assert source.ended


def test_the_next_session_of_a_recording_begins_at_its_own_0() -> None:
    now = 0.0
    source = RecordedServer([OPENING, reading(5.0), OPENING, reading(1.0)], clock=lambda: now)
    source.take()
    now = 5.5
    assert source.take() == [reading(5.0), OPENING]
    now = 6.6
    assert source.take() == [reading(1.0)]
