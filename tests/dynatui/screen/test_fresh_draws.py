"""After any keys, sizes and pages, the terminal shows the same as after a fresh draw.

`DYNATUI_DRAWS=2000` runs 2000 steps instead of 24.
"""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual._xterm_parser import XTermParser
from textual.pilot import Pilot

from dynatui.record.reader import Runs
from dynatui.screen.app import DynaApp
from dynatui.session import View
from dynatui.sources.playback import TraceSource
from dynatui.sources.source import Source
from tests.dynatui.screen.picture import PictureDriver, Seen, afresh, differing, pictured, resize
from tests.dynatui.screen.random_input import commands_that_stay, random_bursts
from tests.dynatui.screen.shown_app import MIDWAY
from tests.dynatui.scripted_runs import ScriptedSource

STEPS = int(os.environ.get("DYNATUI_DRAWS", "24"))
TRACES = Path(__file__).parents[2] / "traces"
LAYING_OUT = ("i", "d", "e", "t", "/", "?", "B", "\x10", "P", *"123456789", *(5 * ("\x1b[27u",)))
SIZES = ((80, 24), (120, 40), (200, 60), (110, 34), (160, 50), (60, 18), (40, 10), (30, 3), (121, 41), (300, 90))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def assert_fresh(app: DynaApp, pilot: Pilot[None], driver: PictureDriver, said: Sequence[str] = ()) -> None:
    await pilot.pause()
    there = driver.picture.cells
    fresh = await afresh(app, driver)
    assert not (rows := differing(there, fresh)), "\n".join((*said[-12:], *rows))


async def random_steps(source: Source, seed: int, steps: int) -> None:
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
    monkeypatch.setattr(DynaApp, "get_system_commands", commands_that_stay)


@pytest.mark.parametrize("seed", range(4))
async def test_random_keys_and_sizes_leave_what_a_fresh_draw_brings(seed: int) -> None:
    names = ("demo.jsonl", "sampled.jsonl", "lighthouse.jsonl")
    if seed < len(names):
        await random_steps(TraceSource(Runs(TRACES / names[seed])), seed, STEPS // 4)
    else:
        await random_steps(ScriptedSource(MIDWAY), seed, STEPS // 4)


async def test_a_panel_that_comes_back_at_another_size_is_drawn_at_that_size() -> None:
    app = DynaApp(ScriptedSource(MIDWAY), ticking=False, clock=lambda: 0.0)
    async with pictured(app, (200, 60)) as (pilot, driver):
        await pilot.press("P", "i", "escape")
        await resize(pilot, driver, (120, 40))
        await pilot.press("i")
        await assert_fresh(app, pilot, driver)


async def cells_of(theme: str) -> list[list[Seen]]:
    app = DynaApp(ScriptedSource(MIDWAY), View(theme=theme), ticking=False, clock=lambda: 0.0)
    async with pictured(app, (120, 40)) as (_, driver):
        return driver.picture.cells


async def test_a_theme_that_is_chosen_later_looks_as_if_it_had_been_there_from_the_start() -> None:
    app = DynaApp(ScriptedSource(MIDWAY), ticking=False, clock=(clock := Clock()))
    async with pictured(app, (120, 40)) as (pilot, driver):
        for name in sorted(app.available_themes)[::9]:
            app.set_theme(name)
            await pilot.pause()
            clock.now += 10  # so that every panel is drawn
            app.tick()
            await pilot.pause()
            assert not (rows := differing(driver.picture.cells, await cells_of(app.theme))), "\n".join(rows)
