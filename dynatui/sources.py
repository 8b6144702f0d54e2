"""Where records come from: an engine that decodes in a thread of its own; `dynatui.playback` plays a recording instead.

Either appends to one list; the screen reads it behind a cursor of its own and drops only what it has taken in, so
nothing is lost and neither side waits. Commands go the other way. torch is imported in the engine's thread only.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from decoder.config import KnobName, RunConfig
from decoder.errors import DecoderError
from decoder.events import Event, Round
from decoder.steering import Steering
from dynatui.recording import Recorder
from dynatui.session import Session
from dynatui.state import Failure, Loading, Prompt, Record

logger = logging.getLogger(__name__)

SHOWN_PER_SECOND = 15.0
"""Tokens a second at which the text can be read, and history be seen at work."""
_SLOWEST = 1 / 64
_FASTEST = 64.0
_FIRST_SPEED = 1 / 4
_ROUNDS_TO_MEASURE = 12
REST_S = 4.0
"""How long a finished prompt stays on the screen."""

Decode = Callable[[str, RunConfig, Steering], Iterator[Event]]
"""Decodes one prompt."""
Load = Callable[[Callable[[str], None]], Decode]
"""Loads the models, reporting what it is busy with."""


class Source(Protocol):
    """What the screen needs from either."""

    records: list[Record]
    steerable: bool
    """Whether knobs can be turned."""

    @property
    def speed(self) -> float:
        """How fast the show runs; 1 is as fast as the machine, or as it was recorded."""

    @property
    def paused(self) -> bool:
        """Whether nothing new comes."""

    @property
    def recording(self) -> bool:
        """Whether events are written to a file."""

    def start(self) -> None:
        """Begins to append."""

    def advance(self, now: float) -> None:
        """Appends what is due at `now` (seconds), for a source without a thread."""

    def set_speed(self, speed: float) -> None:
        """Changes the speed of the show."""

    def set_paused(self, *, paused: bool) -> None:
        """Holds or goes on."""

    def turn(self, name: KnobName, value: float) -> None:
        """Turns a knob, for this prompt and those that follow."""

    def go(self, step: int) -> None:
        """Leaves the prompt in progress for the one `step` places further; 0 begins it again."""

    def stop(self) -> None:
        """Asks the work to end soon."""

    def close(self, timeout_s: float) -> bool:
        """Closes the recording, then waits for the end of the work; whether it came."""


def bounded_speed(speed: float) -> float:
    """The nearest speed that the show may run at."""
    return min(_FASTEST, max(_SLOWEST, speed))


def readable_speed(tokens_per_second: float) -> float:
    """The highest power of two, at most 1, at which the text can be followed."""
    speed = 1.0
    while speed > _SLOWEST and tokens_per_second * speed > SHOWN_PER_SECOND * 4 / 3:
        speed /= 2
    return speed


def load_engine(session: Session) -> Load:
    """The real engine for a session; calling it imports torch."""

    def load(report: Callable[[str], None]) -> Decode:
        report("importing torch and transformers")
        from decoder import decode, load_pair  # noqa: PLC0415 - this import brings torch in

        models = session.models
        pair = load_pair(models.target, models.draft, device=models.device, dtype=models.dtype, report=report)
        return lambda prompt, config, steering: decode(pair, prompt, config, steering)

    return load


class EngineSource:
    """Decodes prompt after prompt, round and round, in a daemon thread until it is stopped."""

    def __init__(
        self, session: Session, load: Load, recorder: Recorder | None = None, *, rest_s: float = REST_S
    ) -> None:
        self.records: list[Record] = []
        self.steerable = True
        self._load = load
        self._rest_s = rest_s
        self._recorder = recorder
        self._prompts = session.prompts
        self._config = session.config
        embedded = session.models.target is None
        self._measuring = session.view.speed is None and embedded
        first = _FIRST_SPEED if embedded else 1.0
        self._steering = Steering(speed=bounded_speed(session.view.speed or first))
        self._lock = threading.RLock()
        """Guards the commands and the recorder; decoding itself never holds it."""
        self._wake = threading.Event()
        self._stopped = False
        self._step: int | None = None
        """The command for after the prompt in progress."""
        self._thread = threading.Thread(target=self._work, name="dynatui-engine", daemon=True)

    @property
    def speed(self) -> float:
        """How fast the show runs."""
        return self._steering.speed

    @property
    def paused(self) -> bool:
        """Whether decoding is held."""
        return self._steering.paused

    @property
    def recording(self) -> bool:
        """Whether events are written to a file."""
        return self._recorder is not None

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def advance(self, now: float) -> None:
        """Nothing: the thread appends by itself."""

    def set_speed(self, speed: float) -> None:
        """Changes the speed of the show, which the source then leaves alone."""
        with self._lock:
            self._measuring = False
            self._steering.speed = bounded_speed(speed)

    def set_paused(self, *, paused: bool) -> None:
        """Holds decoding, or goes on."""
        with self._lock:
            self._steering.paused = paused

    def turn(self, name: KnobName, value: float) -> None:
        """Turns a knob now; the following prompts begin with it."""
        with self._lock:
            self._config = replace(self._config, dynatree=self._config.dynatree.turned(name, value))
            self._steering.turn(name, value)

    def go(self, step: int) -> None:
        """Ends the prompt in progress and goes `step` places on."""
        with self._lock:
            self._step = step
            self._steering.stopped = True
        self._wake.set()

    def stop(self) -> None:
        """Ends the work after the round in progress."""
        with self._lock:
            self._stopped = True
            self._steering.stopped = True
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Closes the recording, then waits for the thread."""
        self.stop()
        with self._lock:
            recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        decode: Decode | None = None
        place = 0
        while not self._stopped:
            try:
                decode = decode or self._load(self._report)
                if self._stopped:
                    return
                self._decode(decode, place)
                self._wake.wait(self._rest_s)
            except DecoderError as error:
                self._fail(str(error), error.exit_code)
            except Exception as error:
                logger.exception("the engine failed")
                self._fail(f"{type(error).__name__}: {error}\nThis is a fault of dynatui; the log has the details.", 3)
            place = (place + self._next_step()) % len(self._prompts)

    def _report(self, message: str) -> None:
        self.records.append(Loading(message))

    def _fail(self, message: str, exit_code: int) -> None:
        self.records.append(Failure(message, exit_code))
        self._wake.wait()

    def _next_step(self) -> int:
        """How far to go on: as the user said, else to the next."""
        with self._lock:
            self._wake.clear()
            if self._stopped:
                self._wake.set()
            step, self._step = self._step, None
            return 1 if step is None else step

    def _decode(self, decode: Decode, place: int) -> None:
        with self._lock:
            previous, config = self._steering, self._config
            self._steering = Steering(speed=previous.speed)
            self._steering.paused = previous.paused
            self._steering.stopped = self._stopped or self._step is not None
            steering = self._steering
        self.records.append(Prompt(place + 1, len(self._prompts)))
        for event in decode(self._prompts[place], config, steering):
            self._take(event)
            self._pace(event)

    def _take(self, event: Event) -> None:
        self.records.append(event)
        with self._lock:
            if self._recorder is not None:
                self._recorder.write(event)

    def _pace(self, event: Event) -> None:
        """Chooses a readable speed once the machine's own is known."""
        if not (self._measuring and isinstance(event, Round) and event.round == _ROUNDS_TO_MEASURE and event.t > 0):
            return
        with self._lock:
            methods = max(1, len(self._config.methods))
            self._steering.speed = readable_speed((event.position + len(event.committed)) / event.t / methods)
            self._measuring = False
