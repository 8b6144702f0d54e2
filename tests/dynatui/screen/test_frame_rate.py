"""Frames on fast and slow lines, and the meters; tests set the time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from textual.pilot import Pilot

from dynatui.render.scene import Meters
from dynatui.screen.app import DynaApp
from dynatui.screen.panel_app import FrameMeter
from dynatui.session import View
from dynatui.state.run_state import Prompt
from dynatui.terminal.driver import Answered
from dynatui.terminal.output import Output
from tests.dynatui.screen.shown_app import FULL, Clock, screen_text, still
from tests.dynatui.scripted_runs import ScriptedSource, story, tree_round

FPS = 10.0
BEATS, ROUNDS = 12, 6


def metered(meter: FrameMeter, seconds: float, *, frames: float, late: float) -> Meters:
    """The meters after so many seconds with so many frames and late ticks a second."""
    meters = Meters()
    for tick in range(round(seconds * FPS) + 1):
        meter.frames, meter.late = round(frames * tick / FPS), round(late * tick / FPS)
        meters = meter.meters(tick / FPS, cpu_s=0.0, sent_bytes=0)
    return meters


@pytest.mark.parametrize(("frames", "late", "fps"), [(4.0, 1.0, FPS), (2.0, 8.0, 2.0)], ids=["at once", "waiting"])
def test_a_line_on_which_frames_wait_is_called_slow_with_the_rate_that_it_takes(
    frames: float, late: float, fps: float
) -> None:
    meters = metered(FrameMeter(FPS), 10.0, frames=frames, late=late)
    assert meters.fps == pytest.approx(fps)
    assert meters.slow_line == (fps < FPS)


def test_the_meters_are_means_over_the_last_seconds() -> None:
    meter = FrameMeter(FPS)
    for tick in range(200):
        late = max(0, tick - 100)
        meters = meter.meters(tick / 10, cpu_s=0.004 * late, sent_bytes=2000 * late)
    assert meters.ui_share == pytest.approx(0.04)
    assert meters.bytes_per_s == pytest.approx(20_000)


def test_the_meters_change_once_a_second_and_say_nothing_before_they_know() -> None:
    assert FrameMeter(FPS).meters(0.0, cpu_s=1.0, sent_bytes=1) == Meters(FPS)
    meter = FrameMeter(FPS)
    assert len({meter.meters(tick / 100, cpu_s=tick**2, sent_bytes=tick) for tick in range(301)}) == 4


class Line(Output):
    """A line without a terminal, busy when a test says so."""

    taken = True

    @property
    def busy(self) -> bool:
        return not self.taken


@dataclass
class Ticking:
    """The app while rounds arrive at every frame."""

    app: DynaApp
    source: ScriptedSource
    line: Line
    pilot: Pilot[None]
    clock: Clock
    told: int = ROUNDS
    shown: list[str] = field(default_factory=list)

    async def beat(self, *, busy: bool) -> None:
        self.source.records.append(tree_round(self.told, f" w{self.told}"))
        self.told += 1
        self.clock.now += 1 / FPS
        self.line.taken = not busy
        self.app._timed_tick()
        await self.see()

    async def see(self) -> None:
        await self.pilot.pause()
        self.shown.append(screen_text(self.app))

    def shows_the_newest(self) -> bool:
        return f" w{self.told - 1}" in self.shown[-1]


@asynccontextmanager
async def beating() -> AsyncIterator[Ticking]:
    source, line, clock = ScriptedSource([Prompt(1, 2), *story(ROUNDS)[:-3]]), Line(), Clock()
    app = still(source, View(fps=round(FPS)), clock, output=line)
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        yield Ticking(app, source, line, pilot, clock)


async def test_while_the_last_frame_is_on_its_way_rounds_are_taken_in_and_none_is_drawn() -> None:
    async with beating() as beats:
        await beats.beat(busy=False)
        assert beats.shows_the_newest()
        assert not beats.app.scene.meters.slow_line
        for _ in range(BEATS):
            await beats.beat(busy=True)
        assert len(set(beats.shown)) == 1
        assert beats.app.viewpoint.work.rounds("dynatree") == beats.told
        await beats.beat(busy=False)
        assert beats.shows_the_newest()


async def test_the_answer_to_a_frame_draws_what_came_meanwhile_without_waiting_for_a_tick() -> None:
    async with beating() as beats:
        for _ in range(BEATS):
            await beats.beat(busy=True)
        beats.line.taken = True
        beats.app.post_message(Answered())
        await beats.see()
        assert beats.shows_the_newest()


async def test_the_answer_to_a_frame_draws_nothing_if_nothing_waited_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beating() as beats:
        await beats.beat(busy=False)
        drawn = list[float]()
        monkeypatch.setattr(beats.app, "paint", lambda _, now, **__: drawn.append(now))
        beats.app.post_message(Answered())
        await beats.see()
        assert drawn == []


async def test_a_key_that_is_pressed_while_a_frame_is_on_its_way_takes_effect_with_the_next_frame() -> None:
    async with beating() as beats:
        await beats.beat(busy=True)
        await beats.pilot.press("]")
        await beats.see()
        assert len(set(beats.shown)) == 1
        beats.line.taken = True
        beats.app.post_message(Answered())
        await beats.see()
        assert beats.shown[-1] != beats.shown[0]
