"""A film shows the run as the screen would, ends with the picture of a fresh draw, and fits any terminal."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import json

from decoder.events import Event
from dynatui.record.reader import Runs
from dynatui.screen.app import DynaApp
from dynatui.screen.film import film, scene_at
from dynatui.session import View
from dynatui.sources.playback import TraceSource
from dynatui.sources.source import Source
from dynatui.state.run_state import Prompt
from tests.dynatui.screen.picture import Picture, afresh, differing, pictured
from tests.dynatui.scripted_runs import HOSTILE, ScriptedSource, run, story

TRACE = Path(__file__).parents[2] / "traces" / "sampled.jsonl"
WHOLE = (Prompt(1, 1), *story())


def played(lines: list[bytes], size: tuple[int, int]) -> Picture:
    picture = Picture(size)
    for line in lines[1:]:
        _, kind, sent = json.decode(line)
        assert kind == "o"
        picture.feed(sent)
    return picture


def still(source: Source, view: View | None = None) -> DynaApp:
    return DynaApp(source, view, ticking=False, clock=lambda: 0.0)


@pytest.mark.parametrize("size", [(200, 60), (80, 24), (40, 10), (30, 3), (1, 1)])
async def test_the_last_frame_is_what_a_fresh_drawing_brings(size: tuple[int, int]) -> None:
    app = still(ScriptedSource(WHOLE))
    async with pictured(app, size) as (_, driver):
        shown = played(list(film(app.screenplay(), app.viewpoint.shown.events)), size)
        assert not (rows := differing(await afresh(app, driver), shown.cells)), "\n".join(rows)


@pytest.mark.parametrize("keys", ["8v", "5t", "d", "i", "2e", ("T", "down", "enter")])
async def test_it_shows_the_panels_that_the_user_has_chosen(keys: Sequence[str]) -> None:
    app = still(ScriptedSource(WHOLE))
    async with pictured(app, (120, 40)) as (pilot, driver):
        await pilot.press(*keys)
        app.scene = scene_at(app.scene, app.viewpoint.whole, app.viewpoint.whole.rounds)
        app.paint(lambda _: app.scene, 0.0, everything=True)
        await pilot.pause()
        shown = played(list(film(app.screenplay(), app.viewpoint.shown.events)), (120, 40))
        assert not (rows := differing(await afresh(app, driver), shown.cells)), "\n".join(rows)


async def test_a_film_of_a_view_that_looks_back_ends_as_one_that_follows() -> None:
    pictures = []
    for keys in ((), ("left", "left")):
        app = still(ScriptedSource(WHOLE))
        async with pictured(app, (120, 40)) as (pilot, _):
            await pilot.press(*keys)
            app.show_note("seen on the screen alone")
            assert app.viewpoint.live is not bool(keys)
            pictures.append(played(list(film(app.screenplay(), app.viewpoint.shown.events)), (120, 40)).cells)
    assert not (rows := differing(*pictures)), "\n".join(rows)
    assert "seen on" not in "".join(str(cell[0]) for row in pictures[0] for cell in row)


async def test_without_colours_it_has_none() -> None:
    app = still(ScriptedSource(WHOLE), View(symbols="ascii", color=False))
    async with pictured(app, (80, 24)) as (_, driver):
        lines = list(film(app.screenplay(), app.viewpoint.shown.events))
        assert not differing(await afresh(app, driver), played(lines, (80, 24)).cells)
        assert b"".join(lines).isascii()


async def test_a_recorded_run_moves_from_frame_to_frame() -> None:
    app = still(source := TraceSource(Runs(TRACE), speed=0.25))
    source.play(source.played_s[1])
    async with pictured(app, (120, 40)):
        header, *frames = map(json.decode, film(app.screenplay(), app.viewpoint.shown.events))
    assert (header["version"], header["width"], header["height"]) == (2, 120, 40)
    times = [seconds for seconds, _, _ in frames]
    assert times == sorted(times)
    assert len(frames) > 10
    assert max(len(sent) for _, _, sent in frames[1:]) < len(frames[0][2]), "changes, and not whole screens"


async def test_the_panel_of_the_app_that_remembers_what_it_drew_is_left_alone() -> None:
    app = still(ScriptedSource(WHOLE))
    async with pictured(app, (120, 40)):
        flow = app.text_panel._flow
        list(film(app.screenplay(), app.viewpoint.shown.events))
        assert app.text_panel._flow is flow


async def test_a_hostile_run_sends_nothing_but_drawings() -> None:
    events: list[Event] = [run(prompt=HOSTILE), *story()[1:]]
    app = still(ScriptedSource([Prompt(1, 1), *events]))
    async with pictured(app, (120, 40)):
        sent = "".join(json.decode(line)[2] for line in list(film(app.screenplay(), events))[1:])
    assert not {"\x07", "\x9b", "\u202e", "\r"} & set(sent)
    assert "\x1b]" not in sent
