"""The source of a server's events: a thread that polls the server or plays a recording. Taking events never blocks."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from dynatui.record.recording import Recorder
from dynatui.servers.attach.events import Answer, Event, Opening, Promise, RequestSent, Server
from dynatui.servers.attach.servers import KINDS, Kind
from dynatui.state.server_state import ServerState, applied, judged, verdict

if TYPE_CHECKING:
    from dynatui.servers.attach.request import Request
    from dynatui.servers.attach.session import Polling

T = TypeVar("T")
_AT_ONCE = 10_000
"""Largest number of events that are returned at once, so that no frame takes too long."""


Pause: TypeAlias = Callable[[float], bool]
"""Waits for the given number of seconds, and returns whether to stop."""
Watch: TypeAlias = Callable[[Pause], Generator[Event]]

Promised: TypeAlias = Callable[[Kind, float], Promise]
"""(kind of a server, seconds since the start) -> the figures with which the server is compared from then on."""


def polled(
    plan: "Polling",
    secret: str | None,
    request: "Request | None" = None,
    promised: Promised | None = None,
) -> Watch:
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


def played(events: Iterable[Event], speed: float = 1.0) -> Watch:
    """A function that plays a recording at `speed` times the recorded speed; sessions follow without a pause."""

    def play(pause: Pause) -> Generator[Event]:
        played_s = 0.0
        for event in events:
            due_s = 0.0 if isinstance(event, Opening) else event.t
            if due_s > played_s and pause((due_s - played_s) / speed):
                return
            played_s = due_s
            yield event

    return play


def _drained(queue: "SimpleQueue[T]") -> list[T]:
    """The waiting items, for the queue's only reader."""
    return [queue.get() for _ in range(min(queue.qsize(), _AT_ONCE))]


class ServerSource:
    """Events of a server or of a recording, from a thread; each is recorded before it is returned."""

    def __init__(self, watch: Watch, recorder: Recorder | None = None, *, live: bool = True) -> None:
        self.live = live
        self.recording = recorder is not None
        self._watch = watch
        self._recorder = recorder
        self._stop, self._playing = threading.Event(), threading.Event()
        self._playing.set()
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="attach", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> list[Event]:
        """Events since the last call; once no event is left, raises the error that ended the source, if any."""
        fault, events = self._fault, _drained(self._events)
        if fault is not None and not events:
            raise fault
        return events

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive() and self._events.empty()

    def set_paused(self, *, paused: bool) -> None:
        """Pauses the playback of a recording; the polling of a live server does not pause."""
        if paused and not self.live:
            self._playing.clear()
        else:
            self._playing.set()

    def stop(self) -> None:
        """The thread ends soon, but only after some seconds if it is waiting for an answer."""
        self._stop.set()
        self._playing.set()

    def close(self, timeout_s: float) -> bool:
        """Closes the recording and waits for the thread to end; returns whether it has ended."""
        self.stop()
        if self._recorder is not None:
            self._recorder.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _pause(self, seconds: float) -> bool:
        self._stop.wait(seconds)
        self._playing.wait()
        return self._stop.is_set()

    def _run(self) -> None:
        try:
            with closing(self._watch(self._pause)) as events:
                for event in events:
                    if self._stop.is_set():
                        return
                    if self._recorder is not None:
                        self._recorder.write(event)
                    self._events.put(event)
        except Exception as error:  # noqa: BLE001 - `take` raises it in the reading thread
            self._fault = error
