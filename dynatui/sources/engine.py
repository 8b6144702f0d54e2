"""A source with an engine, which decodes prompt after prompt in a thread of its own; only this thread imports torch."""

import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from decoder.errors import DecoderError, RecordingError, not_importable, of_system
from decoder.events import Event, Round, Run
from decoder.knobs import KnobName, RulesName
from decoder.methods import METHODS
from decoder.prompt import AnyPrompt, as_prompt, plainest
from decoder.run.config import RunConfig
from decoder.session.steering import Stage, Steering, Turn
from dynatui.gpu import memory_bytes_per_s
from dynatui.prometheus import Exporter
from dynatui.record.recording import Recorder, numbered_run
from dynatui.session import Session
from dynatui.sources.energy import metered
from dynatui.sources.source import REST_S, Conditions, bounded_speed, met, readable_speed
from dynatui.state.run_state import Failure, Loading, Prompt, Record, RunState, apply
from dynatui.state.timeline import run_so_far

if TYPE_CHECKING:
    from decoder.engine import Engine

logger = logging.getLogger(__name__)

_FIRST_SPEED = 1 / 4
_ROUNDS_TO_MEASURE = 12
_NAP_S = 0.1
_MOST_UNFIT = 5
"""Largest number of prompts that cannot be decoded and are reported one by one."""

Decode = Callable[[AnyPrompt, RunConfig, Steering], Iterator[Event]]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Loaded:
    decode: Decode
    prepare: Callable[[], str] = lambda: ""
    """Does a part of the work that was left for idle time; returns the progress, empty if no work is left."""


Load = Callable[[Report, Report], Loaded]
"""Calls its first argument with the name of each loading step, its second with the progress within the step."""


def load_engine(session: Session) -> Load:
    """Returns a function that imports torch, loads the session's models and reports the prompts that cannot be decoded.
    The function raises the first PromptError if there are several prompts and none can be decoded.
    """

    def load(report: Report, progress: Report) -> Loaded:
        ready, decode = _loaded(session, report, progress)
        if len(session.prompts) > 1:
            _report_unfit(ready, session, report)
        return Loaded(decode, ready.prepare)

    return load


def load_with_times(session: Session) -> Load:
    """Returns a function that loads the session's models, adds estimated times of passes to each `Run`, and leaves the
    trials of kernels to idle time.
    """

    def load(report: Report, progress: Report) -> Loaded:
        ready, decode = _loaded(session, report, progress, kernels_later=True)
        from decoder.run.expected import expectation  # noqa: PLC0415 - imports torch

        report("measuring the device")
        expected = expectation(ready.pair, memory_bytes_per_s(ready.pair.device))
        if expected is None:
            return Loaded(decode, ready.prepare)

        def with_times(event: Event) -> Event:
            if not isinstance(event, Run):
                return event
            return structs.replace(event, expected=expected(len(event.prompt_tokens)))

        return Loaded(lambda *given: map(with_times, decode(*given)), ready.prepare)

    return load


def _loaded(
    session: Session, report: Report, progress: Report, *, kernels_later: bool = False
) -> "tuple[Engine, Decode]":
    try:
        from decoder import decode, load_pair  # noqa: PLC0415 - imports torch
    except (ImportError, OSError) as error:
        raise not_importable(error) from error

    ready = load_pair(
        **asdict(session.models), kernels_later=kernels_later, run=session.config, report=report, progress=progress
    )
    decoded: Decode = partial(decode, ready)
    return ready, lambda *given: metered(decoded(*given))


def _report_unfit(ready: "Engine", session: Session, report: Report) -> None:
    from decoder.run.fitting import unfit  # noqa: PLC0415 - imports torch

    count = len(session.prompts)
    report(f"checking the lengths of {count} prompts")
    faults = list(unfit(ready.pair, session.prompts, session.config))
    if len(faults) == count:
        raise faults[0][1]
    for number, error in faults[:_MOST_UNFIT]:
        report(f"prompt {number} of {count} will be skipped: {error}")
    if len(faults) > _MOST_UNFIT:
        report(f"{len(faults) - _MOST_UNFIT} further prompts will be skipped")


class EngineSource:
    """Decodes all prompts in a daemon thread, then waits for a command: `go` begins again, `stop` ends the thread."""

    def __init__(
        self,
        session: Session,
        load: Load,
        recorder: Recorder | None = None,
        exporter: Exporter | None = None,
        *,
        rest_s: float = REST_S,
    ) -> None:
        self.records: list[Record] = [Loading(note) for note in session.notes]
        if exporter:
            self.records.append(Loading(f"serving metrics at {exporter.url}"))
        self.controls = self
        self.playback = None
        self.conditions = Conditions()
        self.broke = ""
        """The break condition that paused decoding, in words; empty if none has."""
        self.session = session
        self.lost: DecoderError | None = None
        """The error that ended the recording early, for example a full disk."""
        self._load = load
        self._rest_s = rest_s
        self._recorder = recorder
        self._exporter = exporter
        self.config = session.config
        """The parameters with all knob changes so far, with which the next prompt begins."""
        self.comparing = ""
        """The method of which two settings are compared; empty if none is."""
        self._before = session.config
        """The parameters of side A in the next comparison."""
        embedded = session.models.embedded
        self._measuring = session.view.speed is None and embedded
        first = _FIRST_SPEED if embedded else 1.0
        self._steering = Steering(speed=bounded_speed(session.view.speed or first))
        self._lock = threading.RLock()
        """Lock of the commands; not held while decoding, or while a decoded event is written to a file."""
        self._wake = threading.Event()
        self._stopped = False
        self._step: int | None = None
        """Number of prompts to move by when the present prompt ends; None: no command was given, so move by 1."""
        self._place = 0
        self._began = 0.0
        self._loading = Loading("starting")
        self._state = RunState()
        """State of the run; updated only while a break condition is active or the speed is measured."""
        self._thread = threading.Thread(target=self._work, name="dynatui-engine", daemon=True)

    @property
    def prompt(self) -> str:
        """Text of the prompt in progress, or of the last turn of a conversation."""
        return as_prompt(self._prompt).text

    @property
    def _prompt(self) -> AnyPrompt:
        return self.session.prompts[self._place]

    @property
    def speed(self) -> float:
        return self._steering.speed

    @property
    def paused(self) -> bool:
        return self._steering.paused

    @property
    def stage(self) -> Stage | None:
        """The stage of the round at which decoding is paused; None while decoding runs."""
        return self._steering.stage

    @property
    def preparing(self) -> str:
        """Progress of the work in idle time; empty if there is no such work."""
        return self._steering.preparing

    @property
    def recorded(self) -> Path | None:
        return self._recorder.path if self._recorder else None

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def advance(self, now: float) -> None: ...

    def set_speed(self, speed: float) -> None:
        """Sets the speed of decoding, and ends its automatic choice."""
        with self._lock:
            self._measuring = False
            self._steering.speed = bounded_speed(speed)

    def set_paused(self, *, paused: bool) -> None:
        with self._lock:
            self.broke = ""
            self._steering.paused = paused

    def step(self) -> None:
        """Permits the next stage of the watched method while decoding is paused."""
        with self._lock:
            self.broke = ""
            self._steering.step()

    def break_on(self, conditions: Conditions) -> None:
        with self._lock:
            if not self.conditions.on:
                self._state = reduce(apply, run_so_far(self.records), RunState(chosen=self._state.chosen))
            self.conditions = conditions

    def turn(self, name: KnobName, value: float, rules_name: RulesName) -> Turn:
        """Sets a knob for all later rounds of this prompt and for all later prompts."""
        with self._lock:
            self.config = self.config.turned(name, value, rules_name)
            return self._steering.turn(name, value, rules_name)

    def watch(self, method: str) -> None:
        with self._lock:
            self._steering.watched = method
            self._state = structs.replace(self._state, chosen=method)

    def compare(self, method: str) -> None:
        """Begins the prompt again with two lanes of one method: the method itself with the present settings, and side
        A with the settings at the end of the previous comparison, or at the start if there was none. Later prompts have
        both lanes too. An empty name ends the comparison, and begins the prompt again without side A. Raises
        ConfigError for a method without parameters.
        """
        with self._lock:
            if method:
                self._beside(self.config, method)
            else:
                self._before = self.config
            self.comparing = method
            self.go(0)

    def _beside(self, config: RunConfig, method: str) -> RunConfig:
        return config.compared(method, self._before.rules(METHODS[method].rules or method))

    def edit(self, prompt: str) -> None:
        """Replaces the prompt in progress; in a conversation, its last turn."""
        with self._lock:
            before, place = self.session.prompts, self._place
            edited = plainest(structs.replace(as_prompt(before[place]), text=prompt))
            self.session = replace(self.session, prompts=(*before[:place], edited, *before[place + 1 :]))
            self.go(0)

    def record(self, path: Path | None) -> None:
        """Ends the recording; with a path, begins another with the run's events so far. May raise RecordingError."""
        with self._lock:
            before, self._recorder = self._recorder, None
            if path is not None:
                self._recorder = Recorder(path, run_so_far(self.records))
        if before is not None:
            before.close()
            before.require_kept()

    def go(self, step: int) -> None:
        """Begins the prompt that is `step` prompts later; 0 begins the present prompt again."""
        with self._lock:
            self._step = step
            self._steering.stopped = True
        self._wake.set()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._steering.stopped = True
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Closes the recording, then waits for the thread to end; returns whether it has ended."""
        self.stop()
        try:
            self.record(None)
        except RecordingError as error:
            self.lost = error
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        loaded: Loaded | None = None
        while not self._stopped:
            try:
                if loaded is None:
                    self._report("importing torch")
                    loaded = self._load(self._report, self._progress)
                    gc.freeze()  # libraries and models stay in memory, so collections need not scan their objects
                if self._stopped:
                    return
                self._decode(loaded.decode)
                self._pause_after_prompt(loaded.prepare)
            except DecoderError as error:
                self._fail(str(error), error.exit_code)
            except Exception as error:
                if limit := of_system(error):
                    self._fail(str(limit), limit.exit_code)
                else:
                    logger.exception("the engine failed")
                    bug = "This is a bug in dynatui; see the log for details."
                    self._fail(f"{type(error).__name__}: {error}\n{bug}", 3)
            self._go_on()

    def _report(self, step: str) -> None:
        self._loading = Loading(step, at_s=time.monotonic() - self._began)
        self.records.append(self._loading)

    def _progress(self, progress: str) -> None:
        self.records.append(replace(self._loading, progress=progress))

    def _fail(self, message: str, exit_code: int) -> None:
        self.records.append(Failure(message, exit_code))
        self._wake.wait()

    def _pause_after_prompt(self, prepare: Callable[[], str]) -> None:
        """Uses the pause to prepare later rounds: at least one part of this work is done after each prompt, so that all
        of it is done eventually. After the last prompt, only a command ends the pause.
        """
        last = self._place + 1 == len(self.session.prompts)
        ends = math.inf if last else time.monotonic() + self._rest_s
        while not self._stopped:
            self._steering.preparing = prepare()
            left_s = ends - time.monotonic()
            if self._wake.is_set() or not (left_s > 0 or self.paused):
                return
            if not self.preparing:
                self._wake.wait(None if last else left_s if left_s > 0 else _NAP_S)

    def _go_on(self) -> None:
        with self._lock:
            self._wake.clear()
            if self._stopped:
                self._wake.set()
            step, self._step = self._step, None
            self._place = (self._place + (1 if step is None else step)) % len(self.session.prompts)

    def _decode(self, decode: Decode) -> None:
        with self._lock:
            previous, config, prompt = self._steering, self.config, self._prompt
            config = self._beside(config, self.comparing) if self.comparing else config
            self._steering = Steering(speed=previous.speed)
            self._steering.watched = previous.watched
            self._steering.pause = previous.pause
            self._steering.stopped = self._stopped or self._step is not None
            steering = self._steering
        number, count = self._place + 1, len(self.session.prompts)
        self.records.append(Prompt(number, count))
        for event in decode(prompt, config, steering):
            self._take(numbered_run(event, number, count))
            self._frame_rate(event)

    def _take(self, event: Event) -> None:
        with self._lock:
            self.records.append(event)
            recorder = self._recorder
            if self.conditions.on or self._measuring:
                before, self._state = self._state, apply(self._state, event)
                if reason := met(self.conditions, before, self._state, event):
                    self.broke = reason
                    self._steering.paused = True
        if self._exporter is not None:
            self._exporter.take(event)
        if recorder is None:
            return
        try:
            recorder.write(event)
        except RecordingError as error:
            self.lost = error
            recorder.close()
            with self._lock:
                if self._recorder is recorder:
                    self._recorder = None
            raise

    def _frame_rate(self, event: Event) -> None:
        if not (self._measuring and isinstance(event, Round) and event.round == _ROUNDS_TO_MEASURE and event.t > 0):
            return
        with self._lock:
            rate = self._state.figures()[event.method].tokens_per_second or 0.0
            self._steering.speed = readable_speed(rate / max(1, len(self.config.methods)))
            self._measuring = False
