"""Frame times on fast and slow lines, and the meters; tests set the time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from textual.pilot import Pilot

from dynatui.render.scene import Meters
from dynatui.screen.app import DynaApp
from dynatui.screen.panel_app import _RECOVERY_S, FrameRate
from dynatui.session import View
from dynatui.state.run_state import Prompt
from dynatui.terminal.output import Output
from tests.dynatui.screen.shown_app import FULL, Clock, screen_text
from tests.dynatui.scripted_runs import ScriptedSource, story, tree_round

FPS = 10.0
FAST, SLOW = 1000.0, 1.0
BEATS, ROUNDS = 12, 6


@dataclass
class SlowLine:
    """A terminal line with a limited number of frames per second."""

    frames_per_second: float = FAST
    frame_rate: FrameRate = field(default_factory=lambda: FrameRate(FPS))
    now: float = 0.0
    free_at: float = 0.0

    def run(self, seconds: float) -> int:
        drawn = 0
        for _ in range(round(seconds * FPS)):
            self.now += 1 / FPS
            if self.frame_rate.due(self.now, busy=self.now < self.free_at):
                drawn += 1
                self.free_at = self.now + 1 / self.frames_per_second
        return drawn

    def meters(self) -> Meters:
        self.now += 2.0
        return self.frame_rate.meters(self.now, cpu_s=0.0, sent_bytes=0)

    def slowed(self, seconds: float) -> "SlowLine":
        self.frames_per_second = SLOW
        self.run(seconds)
        self.frames_per_second, self.free_at = FAST, self.now
        return self

    def recovery_s(self) -> float:
        start = self.now
        while self.run(0.5) < 0.5 * FPS:
            assert self.now < start + 500
        return self.now - start


def test_a_fast_line_gets_every_frame() -> None:
    line = SlowLine()
    assert line.run(10.0) == 100
    assert line.meters() == Meters(FPS)


def test_a_frame_waits_until_the_one_before_is_out() -> None:
    frame_rate = FrameRate(FPS)
    assert [frame_rate.due(now, busy=now == 0.1) for now in (0.0, 0.1, 0.2)] == [True, False, True]


def test_one_late_frame_changes_no_rate() -> None:
    line = SlowLine()
    line.frame_rate.due(0.05, busy=True)
    assert line.run(5.0) == 50


@pytest.mark.parametrize("frames_per_second", [6.0, 3.0, 1.0])
def test_a_slow_line_gets_as_many_frames_as_it_takes(frames_per_second: float) -> None:
    line = SlowLine(frames_per_second)
    line.run(20.0)
    assert frames_per_second / 2.5 <= line.run(20.0) / 20.0 <= frames_per_second
    meters = line.meters()
    assert meters.slow_line
    assert meters.fps < FPS


def test_a_line_that_recovers_gets_its_frames_back() -> None:
    line = SlowLine().slowed(20.0)
    line.run(120.0)
    assert line.run(10.0) == 100
    assert not line.meters().slow_line


def test_a_line_that_hardly_keeps_up_is_not_tried_again_and_again() -> None:
    line = SlowLine(frames_per_second=6.0)
    line.run(120.0)
    skips = [line.frame_rate._skip for _ in range(300) if line.run(0.1) >= 0]
    assert sum(before != after for before, after in pairwise(skips)) <= 3


def test_a_terminal_that_takes_nothing_gets_no_frame_and_one_at_once_when_it_takes_again() -> None:
    line = SlowLine(free_at=60.0)
    assert line.run(59.0) == 0
    line.now = 60.0
    assert line.frame_rate.due(60.1, busy=False)


def test_the_time_that_a_line_must_keep_up_grows_with_its_slowness_and_is_reset_once_it_has_kept_up_for_long() -> None:
    soon = 2 * _RECOVERY_S + 2
    assert SlowLine().slowed(2.0).recovery_s() <= soon
    for kept_up_s, trusted in ((60.0, True), (5.0, False)):
        line = SlowLine().slowed(30.0)
        assert line.recovery_s() > 10 * _RECOVERY_S
        line.run(kept_up_s)
        again_s = line.slowed(2.0).recovery_s()
        assert again_s <= soon if trusted else again_s > 5 * _RECOVERY_S


def test_the_meters_are_means_over_the_last_seconds() -> None:
    frame_rate = FrameRate(FPS)
    for tick in range(200):
        late = max(0, tick - 100)
        meters = frame_rate.meters(tick / 10, cpu_s=0.004 * late, sent_bytes=2000 * late)
    assert meters.ui_share == pytest.approx(0.04)
    assert meters.bytes_per_s == pytest.approx(20_000)


def test_the_meters_change_once_a_second_and_say_nothing_before_they_know() -> None:
    assert FrameRate(FPS).meters(0.0, cpu_s=1.0, sent_bytes=1) == Meters(FPS)
    frame_rate = FrameRate(FPS)
    assert len({frame_rate.meters(tick / 100, cpu_s=tick**2, sent_bytes=tick) for tick in range(301)}) == 4


@dataclass
class Ticking:
    """The app while rounds arrive at every frame."""

    app: DynaApp
    source: ScriptedSource
    output: Output
    pilot: Pilot[None]
    clock: Clock
    told: int = ROUNDS
    shown: list[str] = field(default_factory=list)

    async def beat(self, *, busy: bool) -> None:
        self.source.records.append(tree_round(self.told, f" w{self.told}"))
        self.told += 1
        self.clock.now += 1 / FPS
        self.output.busy = busy
        self.app._timed_tick()
        self.output.busy = False
        await self.pilot.pause()
        self.shown.append(screen_text(self.app))

    def shows_the_newest(self) -> bool:
        return f" w{self.told - 1}" in self.shown[-1]


@asynccontextmanager
async def beating() -> AsyncIterator[Ticking]:
    source, output, clock = ScriptedSource([Prompt(1, 2), *story(ROUNDS)[:-3]]), Output(), Clock()
    app = DynaApp(source, View(fps=round(FPS)), ticking=False, clock=clock, output=output)
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        yield Ticking(app, source, output, pilot, clock)


async def test_while_the_last_frame_is_on_its_way_rounds_are_taken_in_and_none_is_drawn() -> None:
    async with beating() as beats:
        await beats.beat(busy=False)
        for _ in range(BEATS):
            await beats.beat(busy=True)
        assert len(set(beats.shown)) == 1
        assert beats.app.viewpoint.work.rounds("dynatree") == beats.told
        for _ in range(BEATS):
            await beats.beat(busy=False)
            if beats.shows_the_newest():
                break
        assert beats.shows_the_newest()


async def test_a_line_that_keeps_frames_waiting_gets_fewer_of_them() -> None:
    async with beating() as beats:
        for beat in range(3 * BEATS):
            await beats.beat(busy=beat % 3 > 0)
        assert beats.app.scene.meters.slow_line
        fresh = [shown != before for before, shown in pairwise(beats.shown)]
        assert 0 < sum(fresh[BEATS:]) <= BEATS


async def test_a_line_that_takes_each_frame_gets_all_of_them() -> None:
    async with beating() as beats:
        for _ in range(BEATS):
            await beats.beat(busy=False)
            assert beats.shows_the_newest()
        assert not beats.app.scene.meters.slow_line
