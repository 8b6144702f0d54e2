"""A run as an asciicast (version 2): timed terminal output, for asciinema and its players.

https://docs.asciinema.org/manual/asciicast/v2/ describes the format. Chooses the moments of frames and writes the
file. Knows no panels: a frame's terminal output comes as text.
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
"""Most frames a second."""
MOST_FRAMES = 1200
"""Most frames of a film; in a longer run frames are further apart, since each takes time to draw."""
LONGEST_WAIT_S = 2.0
"""Longest pause in seconds; players shorten longer ones to it."""


@dataclass(frozen=True)
class Moment:
    """A moment of a run at which a frame is due."""

    seconds: float
    """Seconds since the start of the film; never decreasing."""
    state: RunState


def moments(events: Sequence[Event], before: RunState, speed: float = 1.0) -> Iterator[Moment]:
    """Moments of a film: the start of a run, its rounds as the frame rate allows, and its end.

    Args:
        events: Events of one run.
        before: State before the run; its watched method's own decode time is the clock.
        speed: Seconds of decode time in a second of the film.
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
    """Lines of the asciicast file.

    Args:
        frames: Time in seconds and terminal output of each frame; an empty output is left out.
        size: Columns and lines of the terminal.
        title: One line.
        started_at: Start of the run in ISO 8601; an invalid one is left out.
    """
    header: dict[str, object] = {"version": 2, "width": size[0], "height": size[1]}
    with suppress(ValueError, OverflowError, OSError):
        header["timestamp"] = int(datetime.fromisoformat(started_at).timestamp())
    header |= {"idle_time_limit": LONGEST_WAIT_S, "title": title, "env": {"TERM": "xterm-256color"}}
    yield _line(header)
    yield from (_line([round(seconds, 6), "o", sent]) for seconds, sent in frames if sent)


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
