"""In each frame all panels show the same round, however it was reached, and the tour holds at its stages."""

import random
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from msgspec import structs
from textual.pilot import Pilot

from decoder.events import Event, Round
from decoder.prompt import AnyPrompt, as_prompt
from decoder.run.config import RunConfig
from decoder.session.steering import Stage, StageName, Steering, hold, takes_step
from dynatui.keymap import PanelName
from dynatui.screen.app import HELD_S, DynaApp
from dynatui.screen.canvas import Canvas
from dynatui.session import Models, Session, View
from dynatui.sources.engine import EngineSource, Loaded
from dynatui.sources.playback import TraceSource
from tests.dynatui.screen.shown_app import FULL, Clock, screen_text
from tests.dynatui.scripted_runs import run, story, tree_round

ROUNDS, LONGEST = 20, 64
PATIENCE_S = 30.0


class Gated:
    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)

    def load(self, report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        del report, progress
        return Loaded(self.decode)

    def decode(self, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        del config
        yield run(prompt=as_prompt(prompt).text)
        for number in range(ROUNDS):
            while not self.gate.acquire(timeout=0.01):
                if steering.stopped:
                    return
            hold(steering)
            event = tree_round(number)
            bare = structs.replace(event, accepted=[], committed=[], text="")
            stages: tuple[tuple[StageName, Round], ...] = (("drafted", bare), ("verified", event))
            for name, known in stages:
                if takes_step(steering):
                    hold(steering, Stage(name, known))
            yield event
            if takes_step(steering):
                hold(steering, Stage("committed", event))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


PER_ROUND = 3
BEAT_S = 0.1
AXIS = 5
NAMED = {
    "status": r"(?:HELD|PAUSED|FROZEN) round (\d+)",
    "tree": r"Tree ─ round (\d+):",
    "timeline": r"round (\d+) of",
    "inspect": r"round (\d+)",
}


@asynccontextmanager
async def following(source: EngineSource | TraceSource) -> AsyncIterator[tuple[DynaApp, Clock, Pilot[None]]]:
    clock = Clock()
    app = DynaApp(source, ticking=False, clock=clock)
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        yield app, clock, pilot
    assert source.close(PATIENCE_S)


def drawn(app: DynaApp) -> dict[str, list[str]]:
    canvases = [canvas for canvas in app.query(Canvas) if canvas.display and canvas.size.area]
    return {canvas.id or "": [bright(canvas, y) for y in range(canvas.size.height)] for canvas in canvases}


def bright(canvas: Canvas, y: int) -> str:
    canvas.render_line(y)
    return "".join(" " * len(text) if ink == "ghost" else text for text, ink in canvas._rows[y])


def charted(rows: list[str]) -> int:
    plot = [row[2 + AXIS : -2 - AXIS] for row in rows[1:-2]]
    cells = len(plot[0])
    pointed = {row.index("┊") for row in plot if "┊" in row}
    if pointed:
        return round(pointed.pop() * LONGEST / (cells - 1) / PER_ROUND) + 1
    last = max(len(row.rstrip()) for row in plot)
    return int(last * LONGEST / cells / PER_ROUND + 1e-9)


def rounds_shown(app: DynaApp) -> dict[str, int]:
    """The round shown by each panel that shows one.

    Curves do not yet include a round that is held before its commit: they end with the round before.
    """
    panels, found = drawn(app), dict[str, int]()
    for panel, pattern in NAMED.items():
        told = re.search(pattern, " ".join(panels.get(panel, [])))
        found |= {panel: int(told[1])} if told else {}
    unfinished = re.search("tree drafted|tree verified", panels["status"][0]) is not None
    inspecting = "inspect" in found
    for panel in ("acceptance", "depth"):
        number = charted(panels[panel]) + (unfinished and not inspecting)
        found |= {panel: number} if number else {}
    return found


class Witness:
    def __init__(self, app: DynaApp, clock: Clock, pilot: Pilot[None]) -> None:
        self.seen: set[int] = set()
        self.told: set[str] = set()
        self._app, self._clock, self._pilot = app, clock, pilot

    def change_view(self) -> None:
        found = rounds_shown(self._app)
        assert len(set(found.values())) <= 1, found
        self.seen |= set(found.values())
        self.told |= set(found)

    def beat(self, seconds: float = BEAT_S) -> None:
        self._clock.now += seconds
        self._app.tick()
        self.change_view()

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self._pilot.press(key)
            self.change_view()
            self.beat()


def engine() -> tuple[EngineSource, Gated]:
    gated = Gated()
    return EngineSource(Session(("Once upon",), Models("big", "small")), gated.load, rest_s=PATIENCE_S), gated


def recorded() -> TraceSource:
    return TraceSource([story(ROUNDS)], speed=1.0)


def reached(source: EngineSource, number: int) -> bool:
    return any(isinstance(record, Round) and record.round == number for record in list(source.records))


def moved_on(source: EngineSource, before: Stage | None) -> bool:
    return source.stage is not None and source.stage is not before


async def test_live_every_panel_is_of_the_same_round() -> None:
    source, gated = engine()
    async with following(source) as parts:
        witness = Witness(*parts)
        for number in range(ROUNDS):
            gated.gate.release()
            until(partial(reached, source, number))
            for _ in range(1 + number % 4):
                witness.beat()
        await witness.press("i", "left", "left", "up", "escape")
    assert witness.told >= {"tree", "timeline", "inspect", "acceptance", "depth"}
    assert len(witness.seen) > ROUNDS / 2


async def test_stepping_every_panel_is_of_the_round_that_is_held() -> None:
    source, gated = engine()
    async with following(source) as parts:
        witness = Witness(*parts)
        await witness.press("P")
        gated.gate.release(ROUNDS)
        stages = set[str]()
        for _ in range(12):
            before = source.stage
            await witness.press(".")
            until(partial(moved_on, source, before))
            for _ in range(4):
                witness.beat()
            found = re.search("tree drafted|tree verified|path committed", drawn(parts[0])["status"][0])
            stages |= {found[0]} if found else set()
    assert stages == {"tree drafted", "tree verified", "path committed"}
    assert {"status", "tree", "timeline", "acceptance", "depth"} <= witness.told


async def test_stepping_and_scrubbing_a_recording_leave_no_panel_behind() -> None:
    async with following(recorded()) as parts:
        witness = Witness(*parts)
        for _ in range(6):
            witness.beat()
        await witness.press(".", ".", "left", "left", "shift+right", "shift+left", "right", ".", "P", "space", ".")
        await witness.press("i", "left", "shift+left", "escape", "home", "right", "end")
    assert witness.told == {"status", "tree", "timeline", "inspect", "acceptance", "depth"}


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_keys_are_pressed_while_it_plays_there_is_one_round(seed: int) -> None:
    chosen = random.Random(seed)
    async with following(recorded()) as parts:
        witness = Witness(*parts)
        for _ in range(60):
            if chosen.random() < 0.5:
                witness.beat(chosen.choice((0.02, 0.1, 0.5)))
            else:
                await witness.press(
                    chosen.choice((".", "left", "right", "shift+left", "P", "space", "i", "escape", "<"))
                )
    assert witness.seen


STAGES: tuple[StageName, ...] = ("drafted", "verified", "committed")


@asynccontextmanager
async def toured(size: tuple[int, int] = FULL) -> AsyncIterator[tuple[DynaApp, EngineSource, Clock, Pilot[None]]]:
    (source, gated), clock = engine(), Clock()
    gated.gate.release(9)
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
        assert [event.round for event in app.scene.state.lane.past] == [0]
        page = screen_text(app)
        assert "Tree ─ round 2:" in page
        assert "None of it is text yet" in page.replace("\n", " ")
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


@pytest.mark.parametrize("key", ["x", "enter", "P", "7", ".", "q"])
async def test_any_key_goes_on_and_does_nothing_else_unless_it_quits(key: str) -> None:
    async with toured() as (app, source, _, pilot):
        before = app.scene.panel
        await pilot.press(key)
        if key == "q":
            assert app.return_code == 0
            return
        app.tick()
        assert (source.paused, app.scene.touring, app.scene.panel) == (False, False, before)


async def test_where_one_panel_is_shown_at_a_time_the_tree_is_and_then_the_text_again() -> None:
    async with toured((80, 24)) as (app, source, _, pilot):
        app.tick()
        assert panel_of(app) == "tree"
        assert "1 of 3, drafted:" in screen_text(app)
        await pilot.press("enter")
        until(lambda: not source.paused)
        app.tick()
        assert panel_of(app) == "text"
