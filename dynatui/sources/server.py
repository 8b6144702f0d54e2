"""Sources of a server's events: the server itself, polled by a thread, or a recording. Taking events never blocks."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from dynatui.record.recording import Recorder
from dynatui.servers.attach.events import Answer, Event, Opening, Promise, RequestSent, Server
from dynatui.servers.attach.servers import KINDS, Kind
from dynatui.state.server_state import ServerState, applied, judged, verdict

if TYPE_CHECKING:
    from dynatui.servers.attach.request import Request
    from dynatui.servers.attach.session import Polling

T = TypeVar("T")
_AT_ONCE = 10_000
"""Largest number of recorded events that are returned at once, so that no frame takes too long."""


Pause: TypeAlias = Callable[[float], bool]
"""Waits for the given number of seconds, and returns whether to stop polling."""

Promised: TypeAlias = Callable[[Kind, float], Promise]
"""(kind of a server, seconds since the start) -> the figures with which the server is compared from then on."""


def polled(
    plan: "Polling",
    secret: str | None,
    request: "Request | None" = None,
    promised: Promised | None = None,
) -> Callable[[Pause], Generator[Event]]:
    """A function that polls in the calling thread, and sends `request` in another thread."""

    def events(pause: Pause) -> Generator[Event]:
        from dynatui.servers.attach.client import Client  # noqa: PLC0415 - not needed for recordings
        from dynatui.servers.attach.session import watch  # noqa: PLC0415

        answers: SimpleQueue[RequestSent | Answer] = SimpleQueue()
        arguments = (plan, secret, request, answers.put)
        sender = threading.Thread(target=_request, args=arguments, name="request", daemon=True)

        def waiting() -> bool:
            return sender.is_alive() or not answers.empty()

        with Client(secret) as client:
            sender.start()
            watched = watch(plan, client.page, pause, time.monotonic, lambda: _drained(answers), waiting)
            yield from diagnosed(watched, promised)

    return events


def diagnosed(events: Iterable[Event], promised: Promised | None) -> Iterator[Event]:
    """Adds `Findings` when their causes change; with `promised`, also a `Promise` per `Server` and final `Findings`."""
    state = ServerState()
    for event in events:
        yield event
        before, state = state, applied(state, event)
        if isinstance(event, Server) and promised is not None:
            promise = promised(KINDS[event.kind], event.t)
            yield promise
            state = applied(state, promise)
        if judged(before, state):
            yield verdict(state, final=False)
    if promised is not None:
        yield verdict(state, final=True)


def _request(
    plan: "Polling", secret: str | None, request: "Request | None", put: Callable[[RequestSent | Answer], None]
) -> None:
    """Sends `request` once the kind of the server is known or cannot be determined."""
    if request is None:
        return
    from dynatui.servers.attach.client import Client  # noqa: PLC0415 - not needed without a request
    from dynatui.servers.attach.request import PATIENCE_S, sent  # noqa: PLC0415
    from dynatui.servers.attach.session import kind_of  # noqa: PLC0415

    with Client(secret) as client:
        put(request.event())
        kind = kind_of(client.page, plan.address.pages)
        put(sent(request, plan.address.base, kind, partial(client.answer, patience_s=PATIENCE_S), time.monotonic))


def _drained(queue: "SimpleQueue[T]") -> list[T]:
    items = list[T]()
    with suppress(Empty):
        while True:
            items.append(queue.get_nowait())
    return items


class ServerSource(Protocol):
    """A source of server events, for runs with and without a screen."""

    paused: bool
    """Whether the playback of a recording is paused; the polling of a live server does not pause."""
    recording: bool
    live: bool

    def start(self) -> None: ...

    def take(self) -> list[Event]:
        """Events since the last call; once no event is left, raises the error that ended the source, if any."""

    @property
    def ended(self) -> bool: ...

    def stop(self) -> None: ...

    def close(self, timeout_s: float) -> bool:
        """Closes the recording and waits for the source to end; returns whether it has ended."""


class LiveServer:
    """Polls a server in a thread, and records every event before it is returned."""

    live = True

    def __init__(self, watch: Callable[[Pause], Generator[Event]], recorder: Recorder | None = None) -> None:
        self.paused = False
        self.recording = recorder is not None
        self._watch = watch
        self._recorder = recorder
        self._stop = threading.Event()
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="attach", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> list[Event]:
        fault, events = self._fault, _drained(self._events)
        if fault is not None and not events:
            raise fault
        return events

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive() and self._events.empty()

    def stop(self) -> None:
        """The thread ends soon, but only after some seconds if it is waiting for an answer."""
        self._stop.set()

    def close(self, timeout_s: float) -> bool:
        self.stop()
        if self._recorder is not None:
            self._recorder.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with closing(self._watch(self._stop.wait)) as events:
                for event in events:
                    if self._stop.is_set():
                        return
                    if self._recorder is not None:
                        self._recorder.write(event)
                    self._events.put(event)
        except Exception as error:  # noqa: BLE001 - `take` raises it in the reading thread
            self._fault = error


class RecordedServer:
    """Plays a recording at `speed` times the recorded speed; sessions follow each other without a pause."""

    live = False
    recording = False

    def __init__(
        self, events: Iterable[Event], speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.paused = False
        self._events = iter(events)
        self._speed = speed
        self._clock = clock
        self._advanced_at = clock()
        self._played = 0.0
        """Played seconds of the present session."""
        self._next: Event | None = None
        self._ended = False

    def start(self) -> None: ...

    def take(self) -> list[Event]:
        """Raises a RecordingError at an invalid line."""
        now = self._clock()
        self._played += 0.0 if self.paused else (now - self._advanced_at) * self._speed
        self._advanced_at, events = now, list[Event]()
        while not self.paused and len(events) < _AT_ONCE and (event := self._upcoming()) is not None:
            if isinstance(event, Opening):
                self._played = 0.0
            elif event.t > self._played:
                break
            events.append(event)
            self._next = None
        return events

    @property
    def ended(self) -> bool:
        return self._ended

    def stop(self) -> None: ...

    def close(self, timeout_s: float) -> bool:
        del timeout_s
        return True

    def _upcoming(self) -> Event | None:
        if self._next is None and not self._ended:
            self._next = next(self._events, None)
            self._ended = self._next is None
        return self._next
