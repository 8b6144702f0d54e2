"""An asciicast of a run, version 2 (https://docs.asciinema.org/manual/asciicast/v2/): the screen's panels, drawn for
every round in a thread that shares no state with the app.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from textual.geometry import Region

from decoder.events import Event, Round, Run
from dynatui.clean import clean_line
from dynatui.render.ink import fit
from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screen.canvas import Still, fitted
from dynatui.screen.wire import RESET, Frame, Shown, in_looks
from dynatui.state.lane import is_sane
from dynatui.state.run_state import RunState, apply
from dynatui.state.timeline import TimelinePosition

FPS = 10
MOST_FRAMES = 1200
"""Approximate maximum number of frames, since drawing them takes time; long runs have a frame rate below `FPS`."""
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


_CURSOR_OFF = "\x1b[?25l"


@dataclass(frozen=True)
class Screenplay:
    stills: Sequence[Still]
    size: tuple[int, int]
    scene: Scene


def film(play: Screenplay, events: Sequence[Event]) -> Iterator[bytes]:
    """Lines of the asciicast, at the present playback speed, but no faster than the run itself."""
    before = RunState(chosen=play.scene.state.watched, prompt=play.scene.state.prompt)
    run = next(event for event in events if isinstance(event, Run))
    frames = _frames(play, list(moments(events, before, min(1.0, play.scene.speed))))
    yield from cast(frames, size=play.size, title=f"dynatui: {before.chosen}", started_at=run.started_at)


def scene_at(scene: Scene, state: RunState, rounds: int) -> Scene:
    newest = state.lane.newest
    place = TimelinePosition(state.rounds, rounds, newest.t if newest else 0.0)
    scene = replace(scene, frozen=False, paused=False, stage=None, broke="", pending={}, hits=(), note="")
    return replace(scene, state=state, whole=None, place=place)


def _frames(play: Screenplay, moments: Sequence[FilmMoment]) -> Iterator[tuple[float, str]]:
    panels = [_drawn(still, play.size) for still in play.stills]
    rounds, shown, opening = moments[-1].state.rounds, Shown(play.size), _CURSOR_OFF
    for moment in moments:
        frame, scene = Frame(shown), scene_at(play.scene, moment.state, rounds)
        if opening:
            frame.clear(RESET)
        for panel in panels:
            panel(scene, frame)
        yield moment.seconds, f"{opening}{frame.text()}"
        opening = ""


def _drawn(still: Still, size: tuple[int, int]) -> Callable[[Scene, Frame], None]:
    """Returns a function that draws a panel of a scene into a frame."""
    # A TextPanel stores what it drew last, so the film needs its own instance.
    draw = TextPanel() if isinstance(still.draw, TextPanel) else still.draw
    left, top, width, height = still.region.intersection(Region(0, 0, *size))

    def show(scene: Scene, frame: Frame) -> None:
        picture = draw(scene, still.region.width, still.region.height)
        rows = [fitted(row, still.region.width, scene) for row in [*picture, *[()] * height][:height]]
        for y, row in enumerate(rows):
            frame.put(in_looks(fit(row, width), still.looks), left, top + y)

    return show
