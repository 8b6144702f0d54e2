"""The app on a scripted source in a terminal of a given size, and its visible text."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from dynatui.screen.app import DynaApp
from dynatui.screen.widgets.canvas import Canvas
from dynatui.session import View
from dynatui.state.run_state import Prompt, Record
from tests.dynatui.scripted_runs import ScriptedSource, story

FULL, TABBED, SMALL = (120, 40), (80, 24), (40, 10)
MIDWAY: tuple[Record, ...] = (Prompt(1, 2), *story()[:-3])


@asynccontextmanager
async def shown(
    records: Sequence[Record] = MIDWAY,
    size: tuple[int, int] = FULL,
    *,
    steerable: bool = True,
    view: View | None = None,
) -> AsyncIterator[tuple[DynaApp, ScriptedSource, Pilot[None]]]:
    source = ScriptedSource(records, steerable=steerable)
    app = DynaApp(source, view, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, source, pilot


def screen_text(app: DynaApp) -> str:
    strips = app.screen_stack[0]._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def visible(app: DynaApp) -> set[str]:
    return {canvas.id or "" for canvas in app.query(Canvas) if canvas.region.area}
