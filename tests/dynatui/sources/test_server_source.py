"""A live server is read in a thread that passes on every event; a recorded one is played at its original pace."""

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from decoder.errors import RecordingError
from dynatui.record.reader import SERVERS, server_events
from dynatui.record.recording import Recorder
from dynatui.servers.attach.events import Event
from dynatui.sources.server import Pause, ServerSource, played
from tests.dynatui.servers.attach.scripted_session import OPENING, SERVER, reading, session

PATIENCE_S = 20.0


def telling(told: list[Event], *, then: Exception | None = None) -> Callable[[Pause], Generator[Event]]:
    def watch(pause: Pause) -> Generator[Event]:
        yield from told
        if then:
            raise then
        pause(0.0)

    return watch


def all_of(source: ServerSource) -> list[Event]:
    taken, until = list[Event](), time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        over = source.ended
        taken += source.take()
        if over:
            return taken
    raise AssertionError("it never ended")


def test_what_is_handed_out_is_recorded_first(tmp_path: Path) -> None:
    path = tmp_path / "server.jsonl"
    source = ServerSource(telling(session(5)), Recorder(path, form=SERVERS))
    source.start()
    assert all_of(source) == session(5)
    source.close(1.0)
    assert list(server_events(path)) == session(5)


@pytest.mark.parametrize("error", [RecordingError("the disk is full"), ZeroDivisionError("a fault of our own")])
def test_what_ends_the_thread_is_raised_after_what_came_before_it(error: Exception) -> None:
    source = ServerSource(telling([OPENING, SERVER], then=error))
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

    source = ServerSource(watch)
    source.start()
    assert waiting.wait(PATIENCE_S)
    assert source.close(PATIENCE_S)
    assert ServerSource(telling([])).close(0.1)


def test_a_recording_is_played_at_its_pace_times_the_speed_and_each_session_begins_at_its_own_0() -> None:
    told: list[Event | float] = []

    def pause(seconds: float) -> bool:
        told.append(seconds)
        return len(told) > 9

    recorded: list[Event] = [OPENING, reading(5.0), reading(5.0), OPENING, reading(1.0), reading(9.0)]
    told.extend(played(recorded, speed=2.0)(pause))
    assert told == [OPENING, 2.5, reading(5.0), reading(5.0), OPENING, 0.5, reading(1.0), 4.0, reading(9.0)]


def test_a_recording_that_is_held_goes_on_from_there_and_can_be_closed() -> None:
    source = ServerSource(played([OPENING, reading(0.01), reading(0.02)]), live=False)
    source.set_paused(paused=True)
    source.start()
    time.sleep(0.1)
    assert (source.take(), source.take(), source.ended) == ([OPENING], [], False)
    source.set_paused(paused=False)
    assert all_of(source) == [reading(0.01), reading(0.02)]
    held = ServerSource(played([OPENING, reading(0.01)]), live=False)
    held.set_paused(paused=True)
    held.start()
    assert held.close(PATIENCE_S)
