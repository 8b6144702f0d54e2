"""The app on a scripted source or a recording in a terminal of a given size, and its visible text."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from decoder.events import Event
from decoder.run.config import RunConfig
from dynatui.screen.app import DynaApp
from dynatui.screen.canvas import Canvas
from dynatui.screen.panel_app import PanelApp
from dynatui.session import View
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Prompt, Record
from tests.dynatui.scripted_runs import ScriptedSource, runs_of, story

FULL, TABBED, SMALL = (120, 40), (80, 24), (40, 10)
MIDWAY: tuple[Record, ...] = (Prompt(1, 2), *story()[:-3])


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def still(source: Any, view: View | None = None, clock: Callable[[], float] = float, **how: Any) -> DynaApp:
    """An app that ticks only when told to."""
    return DynaApp(source, view, ticking=False, clock=clock, **how)


@asynccontextmanager
async def shown(
    records: Sequence[Record] = MIDWAY,
    size: tuple[int, int] = FULL,
    *,
    steerable: bool = True,
    view: View | None = None,
    config: RunConfig | None = None,
) -> AsyncIterator[tuple[DynaApp, ScriptedSource, Pilot[None]]]:
    source = ScriptedSource(records, steerable=steerable)
    source.steering.config = config or source.steering.config
    app = still(source, view)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, source, pilot


@asynccontextmanager
async def replayed(
    runs: Sequence[Sequence[Event]] | None = None, seconds: float = 0.0, size: tuple[int, int] = FULL
) -> AsyncIterator[tuple[DynaApp, TraceSource, Pilot[None]]]:
    """A recording of which some seconds have been played."""
    source = TraceSource(runs_of(story(30)) if runs is None else runs, speed=1.0)
    source.play(seconds)
    app = still(source)
    async with app.run_test(size=size) as pilot:
        app.tick()
        await pilot.pause()
        yield app, source, pilot


async def told(app: DynaApp, source: ScriptedSource, pilot: Pilot[None], *records: Record) -> str:
    """The screen after more records."""
    source.records += records
    app.read_events()
    app.draw(everything=True)
    await pilot.pause()
    return screen_text(app)


def screen_text(app: PanelApp, level: int = 0) -> str:
    strips = app.screen_stack[level]._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def visible(app: DynaApp) -> set[str]:
    return {canvas.id or "" for canvas in app.query(Canvas) if canvas.region.area}
