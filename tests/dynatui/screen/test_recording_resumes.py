"""A paused recording resumes at the round being viewed, and the view follows it again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from dynatui.screen.app import DynaApp
from dynatui.sources.playback import TraceSource
from tests.dynatui.screen.shown_app import FULL
from tests.dynatui.scripted_runs import rounds_shown, runs_of, story

RESUME = ("space", "P")


@asynccontextmanager
async def standing(*looks: str) -> AsyncIterator[tuple[DynaApp, TraceSource, Pilot[None]]]:
    source = TraceSource(runs_of([*story(30)]), speed=1.0)
    source.play(1.0)
    app = DynaApp(source, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=FULL) as pilot:
        app.tick()
        await pilot.press("P", *looks)
        assert source.paused
        yield app, source, pilot


@pytest.mark.parametrize("key", RESUME)
async def test_the_view_goes_on_from_the_place_that_is_looked_at_and_then_with_the_recording(key: str) -> None:
    async with standing("home", "right", "right") as (app, source, pilot):
        assert not app.viewpoint.live
        await pilot.press(key)
        assert (source.paused, app.viewpoint.live) == (False, True)
        assert (app.scene.place.round, rounds_shown(source.records)) == (2, 2)
        source.play(0.5)
        app.tick()
        assert app.scene.place.round == rounds_shown(source.records) > 2


@pytest.mark.parametrize("key", RESUME)
async def test_at_the_place_that_was_reached_nothing_is_told_again(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing("left", "right") as (app, source, pilot):
        monkeypatch.setattr(source, "seek_round", lambda *_: pytest.fail("was told again"))
        reached = rounds_shown(source.records)
        assert (app.viewpoint.live, app.scene.place.round) == (False, reached)
        await pilot.press(key)
        assert app.viewpoint.live
        source.play(0.5)
        app.tick()
        assert app.scene.place.round == rounds_shown(source.records) > reached


@pytest.mark.parametrize("key", RESUME)
async def test_where_nobody_looked_back_it_goes_on_where_it_stood(key: str) -> None:
    async with standing() as (app, source, pilot):
        reached = rounds_shown(source.records)
        await pilot.press(key)
        assert (source.paused, app.viewpoint.live, rounds_shown(source.records)) == (False, True, reached)
        source.play(0.5)
        app.tick()
        assert app.scene.place.round == rounds_shown(source.records) > reached
