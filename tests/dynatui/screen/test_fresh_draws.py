"""After any keys, sizes and pages, and at the end of a film, the terminal shows the same as after a fresh draw.

`DYNATUI_DRAWS=2000` runs 2000 steps instead of 24.
"""

import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyte
import pytest
from msgspec import json
from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import headless_driver
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from textual.pilot import Pilot

from decoder.events import Event
from dynatui.keymap import Keymap
from dynatui.record.reader import Runs
from dynatui.screen.app import DynaApp
from dynatui.screen.canvas import Canvas
from dynatui.screen.film import film, scene_at
from dynatui.screen.panel_app import PanelApp
from dynatui.session import View
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Prompt
from tests.dynatui.screen.random_input import commands_that_stay, random_bursts
from tests.dynatui.screen.shown_app import MIDWAY, Clock, still
from tests.dynatui.scripted_runs import HOSTILE, ScriptedSource, run, story

Seen: TypeAlias = tuple[object, ...]


class Picture:
    def __init__(self, size: tuple[int, int]) -> None:
        self._screen = pyte.Screen(*size)
        self._stream = pyte.Stream(self._screen)

    def feed(self, sent: str) -> None:
        self._stream.feed(sent)

    def resize(self, width: int, height: int) -> None:
        self._screen.resize(height, width)

    @property
    def cells(self) -> list[list[Seen]]:
        screen = self._screen
        return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


class PictureDriver(HeadlessDriver):
    picture: Picture

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        if not hasattr(self, "picture"):
            self.picture = Picture(self._size or (80, 24))
        self.picture.feed(data)


@asynccontextmanager
async def pictured(app: PanelApp, size: tuple[int, int]) -> AsyncIterator[tuple[Pilot[None], PictureDriver]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headless_driver, "HeadlessDriver", PictureDriver)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            driver: Any = app._driver
            assert isinstance(driver, PictureDriver)
            yield pilot, driver


async def resize(pilot: Pilot[None], driver: PictureDriver, size: tuple[int, int]) -> None:
    driver._size = size
    driver.picture.resize(*size)
    driver.process_message(events.Resize(Size(*size), Size(*size)))
    await pilot.pause()


async def afresh(app: PanelApp, driver: PictureDriver) -> list[list[Seen]]:
    own, driver.picture = driver.picture, Picture(driver._size or (80, 24))
    app._shown = None
    for canvas in app.screen_stack[0].query(Canvas):
        canvas._forget()
        canvas.show(canvas._scene, canvas._inks)
    app._display(app.screen, app.screen._compositor.render_full_update())
    fresh, driver.picture = driver.picture, own
    return fresh.cells


def assert_alike(one: list[list[Seen]], other: list[list[Seen]], *said: str) -> None:
    rows = [
        f"row {y}:\n{''.join(str(cell[0]) for cell in a)}\n{''.join(str(cell[0]) for cell in b)}"
        f"\n{''.join('^' if c != d else ' ' for c, d in zip(a, b, strict=True))}"
        for y, (a, b) in enumerate(zip(one, other, strict=True))
        if a != b
    ]
    assert not rows, "\n".join((*said, *rows))


def _seen(cell: pyte.screens.Char) -> Seen:
    front, back = (cell.bg, cell.fg) if cell.reverse else (cell.fg, cell.bg)
    if cell.data == " ":
        return " ", back, cell.underscore, cell.strikethrough
    return cell.data, front, back, cell.bold, cell.italics, cell.underscore, cell.strikethrough


STEPS = int(os.environ.get("DYNATUI_DRAWS", "24"))
TRACES = Path(__file__).parents[2] / "traces"
LAYING_OUT = ("i", "d", "e", "t", "/", "?", "B", "\x10", "P", *"123456789", *(5 * ("\x1b[27u",)))
SIZES = ((80, 24), (120, 40), (200, 60), (110, 34), (160, 50), (60, 18), (40, 10), (30, 3), (121, 41), (300, 90))


async def assert_fresh(app: DynaApp, pilot: Pilot[None], driver: PictureDriver, said: Sequence[str] = ()) -> None:
    await pilot.pause()
    assert_alike(driver.picture.cells, await afresh(app, driver), *said[-12:])


async def random_steps(source: Any, seed: int, steps: int) -> None:
    clock, chosen = Clock(), random.Random(seed)
    app = DynaApp(source, ticking=False, clock=clock)
    parser, said = XTermParser(), list[str]()
    async with pictured(app, (120, 40)) as (pilot, driver):
        bursts = random_bursts(seed, 20 * steps)
        for _ in range(steps):
            if chosen.random() < 0.25:
                size = chosen.choice(SIZES)
                said.append(f"size {size}")
                await resize(pilot, driver, size)
            else:
                burst = chosen.choice(LAYING_OUT) if chosen.random() < 0.5 else next(bursts)
                said.append(f"keys {burst!r}")
                for message in parser.feed(burst):
                    driver.process_message(message)
                await pilot.pause()
            if chosen.random() < 0.7:
                clock.now += chosen.choice((0.1, 0.4, 1.0, 7.0))
                app.tick()
                said.append(f"tick at {clock.now:.1f}")
            await assert_fresh(app, pilot, driver, said)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Keymap, "commands", commands_that_stay)


@pytest.mark.parametrize("seed", range(4))
async def test_random_keys_and_sizes_leave_what_a_fresh_draw_brings(seed: int) -> None:
    names = ("demo.jsonl", "sampled.jsonl", "lighthouse.jsonl")
    if seed < len(names):
        await random_steps(TraceSource(Runs(TRACES / names[seed])), seed, STEPS // 4)
    else:
        await random_steps(ScriptedSource(MIDWAY), seed, STEPS // 4)


async def test_a_panel_that_comes_back_at_another_size_is_drawn_at_that_size() -> None:
    app = still(ScriptedSource(MIDWAY))
    async with pictured(app, (200, 60)) as (pilot, driver):
        await pilot.press("P", "i", "escape")
        await resize(pilot, driver, (120, 40))
        await pilot.press("i")
        await assert_fresh(app, pilot, driver)


async def cells_of(theme: str) -> list[list[Seen]]:
    app = still(ScriptedSource(MIDWAY), View(theme=theme))
    async with pictured(app, (120, 40)) as (_, driver):
        return driver.picture.cells


async def test_a_theme_that_is_chosen_later_looks_as_if_it_had_been_there_from_the_start() -> None:
    app = still(ScriptedSource(MIDWAY), clock=(clock := Clock()))
    async with pictured(app, (120, 40)) as (pilot, driver):
        for name in sorted(app.available_themes)[::9]:
            app.set_theme(name)
            await pilot.pause()
            clock.now += 10  # so that every panel is drawn
            app.tick()
            await pilot.pause()
            assert_alike(driver.picture.cells, await cells_of(app.theme))


TRACE = Path(__file__).parents[2] / "traces" / "sampled.jsonl"
WHOLE = (Prompt(1, 2), *story())


def filmed(app: DynaApp) -> list[bytes]:
    return list(film(app.screenplay(), app.viewpoint.shown.events))


def played(lines: list[bytes], size: tuple[int, int]) -> Picture:
    picture = Picture(size)
    for line in lines[1:]:
        _, kind, sent = json.decode(line)
        assert kind == "o"
        picture.feed(sent)
    return picture


@pytest.mark.parametrize(
    ("size", "keys"),
    [
        *((size, "") for size in ((200, 60), (40, 10), (1, 1))),
        *(((120, 40), keys) for keys in ("8 v", "5 t", "d", "i", "2 e T down enter")),
    ],
)
async def test_the_last_frame_is_what_a_fresh_drawing_of_the_panels_chosen_brings(
    size: tuple[int, int], keys: str
) -> None:
    app = still(ScriptedSource(WHOLE))
    async with pictured(app, size) as (pilot, driver):
        await pilot.press(*keys.split())
        app.scene = scene_at(app.scene, app.viewpoint.whole, app.viewpoint.whole.rounds)
        app.paint(lambda _: app.scene, 0.0, everything=True)
        await pilot.pause()
        flow = app.text_panel._own.flow
        shown = played(filmed(app), size)
        assert app.text_panel._own.flow is flow, "the app's own panel remembers what it drew itself"
        assert_alike(await afresh(app, driver), shown.cells)


async def test_a_film_of_a_view_that_looks_back_ends_as_one_that_follows() -> None:
    pictures = []
    for keys in ((), ("left", "left")):
        app = still(ScriptedSource(WHOLE))
        async with pictured(app, (120, 40)) as (pilot, _):
            await pilot.press(*keys)
            app.show_note("seen on the screen alone")
            assert app.viewpoint.live is not bool(keys)
            pictures.append(played(filmed(app), (120, 40)).cells)
    assert_alike(pictures[0], pictures[1])
    assert "seen on" not in "".join(str(cell[0]) for row in pictures[0] for cell in row)


async def test_without_colours_it_has_none() -> None:
    app = still(ScriptedSource(WHOLE), View(symbols="ascii", color=False))
    async with pictured(app, (80, 24)) as (_, driver):
        lines = filmed(app)
        assert_alike(await afresh(app, driver), played(lines, (80, 24)).cells)
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


async def test_a_hostile_run_sends_nothing_but_drawings() -> None:
    events: list[Event] = [run(prompt=HOSTILE), *story()[1:]]
    app = still(ScriptedSource([Prompt(1, 1), *events]))
    async with pictured(app, (120, 40)):
        sent = "".join(json.decode(line)[2] for line in list(film(app.screenplay(), events))[1:])
    assert not {"\x07", "\x9b", "\u202e", "\r"} & set(sent)
    assert "\x1b]" not in sent
