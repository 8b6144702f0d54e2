"""An asciicast of a run: the screen's panels, drawn for every round in a thread that shares no state with the app."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from textual.geometry import Region

from decoder.events import Event, Run
from dynatui.record.cast import FilmMoment, cast, moments
from dynatui.render.ink import fit
from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screen.widgets.canvas import Still, fitted
from dynatui.screen.widgets.wire import RESET, Frame, Shown, in_looks
from dynatui.state.run_state import RunState
from dynatui.state.timeline import TimelinePosition

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
    """Draws the panel of a scene into a frame."""
    # A TextPanel stores what it drew last, so the film needs its own instance.
    draw = TextPanel() if isinstance(still.draw, TextPanel) else still.draw
    left, top, width, height = still.region.intersection(Region(0, 0, *size))

    def show(scene: Scene, frame: Frame) -> None:
        picture = draw(scene, still.region.width, still.region.height)
        rows = [fitted(row, still.region.width, scene) for row in [*picture, *[()] * height][:height]]
        for y, row in enumerate(rows):
            frame.put(in_looks(fit(row, width), still.looks), left, top + y)

    return show
