"""The tour in the second round of a run without options: each stage pauses with a caption, and any key continues."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from decoder.session.steering import StageName
from dynatui.keymap import PanelName
from dynatui.screen.app import DynaApp
from dynatui.screen.tour import HELD_S
from dynatui.session import Models, Session, View
from dynatui.sources.engine import EngineSource
from tests.dynatui.screen.gated_engine import PATIENCE_S, Clock, Gated, until
from tests.dynatui.screen.shown_app import FULL, screen_text

STAGES: tuple[StageName, ...] = ("drafted", "verified", "committed")


@asynccontextmanager
async def toured(size: tuple[int, int] = FULL) -> AsyncIterator[tuple[DynaApp, EngineSource, Clock, Pilot[None]]]:
    gated, clock = Gated(), Clock()
    gated.gate.release(9)
    source = EngineSource(Session(("Once upon",), Models("big", "small")), gated.load, rest_s=PATIENCE_S)
    app = DynaApp(source, View(tour=True), ticking=False, clock=clock)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        until(lambda: source.stage is not None)
        app.tick()
        yield app, source, clock, pilot
    assert source.close(PATIENCE_S)


def panel_of(app: DynaApp) -> PanelName:
    return app.scene.panel


def held_at(source: EngineSource, name: StageName) -> bool:
    return source.stage is not None and source.stage.name == name


async def test_each_stage_has_its_caption_and_all_take_less_than_four_seconds() -> None:
    assert sum(HELD_S.values()) < 4
    async with toured() as (app, source, clock, _):
        for number, name in enumerate(STAGES, 1):
            until(lambda name=name: held_at(source, name))  # type: ignore[misc]
            app.tick()
            assert f"{number} of 3, {name}:" in screen_text(app)
            assert "any key goes on" in screen_text(app)
            clock.now += HELD_S[name] - 0.01
            app.tick()
            assert held_at(source, name)
            clock.now += 0.02
            app.tick()
        until(lambda: not source.paused)
        app.tick()
        assert "any key goes on" not in screen_text(app)
        assert not app.scene.touring


@pytest.mark.parametrize("key", ["x", "enter", "P", "7", "."])
async def test_any_key_goes_on_and_does_nothing_else(key: str) -> None:
    async with toured() as (app, source, _, pilot):
        before = app.scene.panel
        await pilot.press(key)
        app.tick()
        assert not source.paused
        assert not app.scene.touring
        assert app.scene.panel == before


async def test_quitting_is_not_skipped() -> None:
    async with toured() as (app, _, _, pilot):
        await pilot.press("q")
        assert app.return_code == 0


async def test_where_one_panel_is_shown_at_a_time_the_tree_is_and_then_the_text_again() -> None:
    async with toured((80, 24)) as (app, source, _, pilot):
        app.tick()
        assert panel_of(app) == "tree"
        assert "1 of 3, drafted:" in screen_text(app)
        await pilot.press("enter")
        until(lambda: not source.paused)
        app.tick()
        assert panel_of(app) == "text"


async def test_the_first_round_is_text_before_the_second_is_held() -> None:
    async with toured() as (app, source, _, _):
        assert held_at(source, "drafted")
        assert [event.round for event in app.scene.state.lane.past] == [0]
        assert "Tree ─ round 2:" in screen_text(app)


async def test_until_its_guesses_are_checked_the_text_panel_says_that_they_are_no_text() -> None:
    async with toured() as (app, source, _, _):
        assert held_at(source, "drafted")
        assert "None of it is text yet" in screen_text(app).replace("\n", " ")
