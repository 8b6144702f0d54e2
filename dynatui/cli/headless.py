"""Runs and replays without a screen. An interrupted or failed run still prints its text and keeps its recording."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO

import msgspec

from decoder.errors import DecoderError, ModelError, PromptError
from decoder.events import Event
from decoder.session.steering import Steering
from dynatui.prometheus import Exporter, exporting
from dynatui.record.comparison import CHANGED, Comparison, told
from dynatui.record.recording import Recorder, numbered_run
from dynatui.record.transcript import Transcript
from dynatui.session import Session
from dynatui.terminal import streams
from dynatui.terminal.shutdown import stoppable
from dynatui.terminal.streams import OutputError, results_only

if TYPE_CHECKING:
    from dynatui.sources.engine import Load

INTERRUPTED = 130
_PATIENCE_S = 2.0
"""Seconds from a signal other than Ctrl-C to the interruption of a round or write; Ctrl-C waits for the round's end."""


def run(session: Session, transcript: Transcript, load: "Load") -> int:
    """Decodes all prompts once; returns the exit code. Skips unusable prompts; raises PromptError if none is usable."""
    steering = Steering(speed=session.view.speed or 1.0)
    with (
        exporting(session.metrics_port) as exporter,
        Recorder(session.record) if session.record else nullcontext() as recorder,
        _interruptible(steering, transcript) as begin,
        results_only(),
    ):
        for note in session.notes:
            transcript.note(note)
        if exporter:
            transcript.note(f"metrics at {exporter.url}")
        decode = load(transcript.note, lambda _: None).decode
        begin()
        count, skipped = len(session.prompts), 0
        for number, prompt in enumerate(session.prompts, 1):
            if steering.stopped:
                break
            transcript.note(f"prompt {number} of {count}")
            try:
                for decoded in decode(prompt, session.config, steering):
                    _take(numbered_run(decoded, number, count), recorder, exporter, transcript)
            except PromptError as error:
                skipped += 1
                if skipped == count:
                    raise
                transcript.note(f"prompt {number} of {count} is skipped: {error}")
    transcript.result()
    if steering.stopped:
        transcript.note("interrupted")
        return INTERRUPTED
    if skipped:
        transcript.note(f"{skipped} of {count} prompts skipped")
    return ModelError.exit_code if transcript.failed else PromptError.exit_code if skipped else 0


def _take(event: Event, recorder: Recorder | None, exporter: Exporter | None, transcript: Transcript) -> None:
    if recorder:
        recorder.write(event)
    if exporter:
        exporter.take(event)
    transcript.feed(event)


def replay_events(events: Iterable[Event], transcript: Transcript) -> int:
    for event in events:
        transcript.feed(event)
    transcript.result()
    return 0


def compare(found: Comparison, out: TextIO, *, as_json: bool) -> int:
    lines = [msgspec.json.encode(found).decode()] if as_json else told(found)
    for line in lines:
        streams.show(f"{line}\n", out)
    return CHANGED if found.changed else 0


def follow(events: Iterable[Event], transcript: Transcript) -> int:
    steering = Steering()
    with _interruptible(steering, transcript):
        replay_events(events, transcript)
    if not steering.stopped:
        return 0
    transcript.note("interrupted")
    return INTERRUPTED


@contextmanager
def _interruptible(steering: Steering, transcript: Transcript) -> Iterator[Callable[[], None]]:
    """Context in which a signal interrupts the run; yields a function to be called when decoding begins.

    Before this call, a first signal interrupts at once; after it, at the end of the round. The transcript is printed
    before KeyboardInterrupt is suppressed, and before a DecoderError other than OutputError propagates.
    """
    decoding = False

    def begin() -> None:
        nonlocal decoding
        decoding = True

    def stop(number: int) -> float | None:
        steering.stopped = True
        if not decoding:
            raise KeyboardInterrupt
        return None if number == signal.SIGINT else _PATIENCE_S

    with stoppable(stop):
        try:
            yield begin
        except OutputError:
            raise
        except DecoderError:
            transcript.finish()
            raise
        except KeyboardInterrupt:
            steering.stopped = True
            transcript.finish()
