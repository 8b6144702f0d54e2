"""Writes a run as an asciicast, version 2 (https://docs.asciinema.org/manual/asciicast/v2/); independent of panels."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec

from decoder.events import Event, Round
from dynatui.clean import clean_line
from dynatui.state.lane import is_sane
from dynatui.state.run_state import RunState, apply

FPS = 10
MOST_FRAMES = 1200
"""Limit because each frame takes time to draw; a run that would need more frames has a frame rate below `FPS`."""
LONGEST_WAIT_S = 2.0
"""Players shorten longer pauses to this value (`idle_time_limit`)."""


@dataclass(frozen=True)
class FilmMoment:
    seconds: float
    """Seconds since the start of the film; never decreasing."""
    state: RunState


def moments(events: Sequence[Event], before: RunState, speed: float = 1.0) -> Iterator[FilmMoment]:
    """Yields the state at the start of a run, after rounds of the watched method (at most `FPS` a second, about
    `MOST_FRAMES` in all), and at the end. `before`: the state before the first event, which names the watched method.
    The time in the film is this method's decode time divided by `speed`.
    """
    state = before
    times = [event.t for event in events if isinstance(event, Round) and is_sane(event.t)]
    apart = max(1 / FPS, max(times, default=0.0) / speed / MOST_FRAMES)
    seconds, due = 0.0, 0.0
    for place, event in enumerate(events):
        state = apply(state, event)
        ticks = isinstance(event, Round) and clean_line(event.method) == state.watched
        if isinstance(event, Round) and ticks and is_sane(event.t):
            seconds = max(seconds, event.t / speed)
        if place == 0 or (ticks and seconds >= due):
            yield FilmMoment(seconds, state)
            due = seconds + apart
    yield FilmMoment(seconds, state)


def cast(frames: Iterable[tuple[float, str]], *, size: tuple[int, int], title: str, started_at: str) -> Iterator[bytes]:
    """Lines of the file. Frames without output are omitted, and so is `started_at` if it is not in ISO 8601."""
    header: dict[str, object] = {"version": 2, "width": size[0], "height": size[1]}
    with suppress(ValueError, OverflowError, OSError):
        header["timestamp"] = int(datetime.fromisoformat(started_at).timestamp())
    header |= {"idle_time_limit": LONGEST_WAIT_S, "title": title, "env": {"TERM": "xterm-256color"}}
    yield _line(header)
    yield from (_line([round(seconds, 6), "o", sent]) for seconds, sent in frames if sent)


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
