"""A run as an asciicast (version 2): what a terminal was sent, and when, for asciinema and its players.

https://docs.asciinema.org/manual/asciicast/v2/ describes the format. Says at which moments of a run a frame is due and
how frames are written. Knows no panels: what a frame sends comes as text.
"""

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
"""Frames a second, at most."""
MOST_FRAMES = 1200
"""Of a run that takes longer, frames are further apart: they take time to draw."""
LONGEST_WAIT_S = 2.0
"""Players cut longer waits to this."""


@dataclass(frozen=True)
class Moment:
    """A moment of a run at which a frame is due."""

    seconds: float
    """Since the beginning of the film; never falls."""
    state: RunState


def moments(events: Sequence[Event], before: RunState, speed: float = 1.0) -> Iterator[Moment]:
    """The beginning of a run, its rounds as far as frames keep up with them, and its end.

    Args:
        events: Those of one run.
        before: The state before it; the method that it has chosen is watched, and its own decode time is the clock.
        speed: Seconds of that clock in a second of the film.
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
            yield Moment(seconds, state)
            due = seconds + apart
    yield Moment(seconds, state)


def cast(frames: Iterable[tuple[float, str]], *, size: tuple[int, int], title: str, started_at: str) -> Iterator[bytes]:
    """The lines of the file.

    Args:
        frames: When each is sent, in seconds, and what is sent; of nothing there is no line.
        size: Columns and lines of the terminal.
        title: One line.
        started_at: ISO 8601, as a run tells it; what is none is left out.
    """
    header: dict[str, object] = {"version": 2, "width": size[0], "height": size[1]}
    with suppress(ValueError, OverflowError, OSError):
        header["timestamp"] = int(datetime.fromisoformat(started_at).timestamp())
    header |= {"idle_time_limit": LONGEST_WAIT_S, "title": title, "env": {"TERM": "xterm-256color"}}
    yield _line(header)
    yield from (_line([round(seconds, 6), "o", sent]) for seconds, sent in frames if sent)


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
