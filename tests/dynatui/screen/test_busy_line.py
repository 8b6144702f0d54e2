"""The app on a slow line: all events are processed, and only the newest state is drawn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from textual.pilot import Pilot

from dynatui.screen.app import DynaApp
from dynatui.session import View
from dynatui.state.run_state import Prompt
from dynatui.terminal.output import Output
from tests.dynatui.screen.shown_app import FULL, screen_text
from tests.dynatui.scripted_runs import ScriptedSource, story, tree_round

FPS = 10
BEATS = 12
ROUNDS = 6


@dataclass
class Ticking:
    app: DynaApp
    source: ScriptedSource
    output: Output
    pilot: Pilot[None]
    now: list[float]
    told: int = ROUNDS
    shown: list[str] = field(default_factory=list)

    async def beat(self, *, busy: bool) -> None:
        self.source.records.append(tree_round(self.told, f" w{self.told}"))
        self.told += 1
        self.now[0] += 1 / FPS
        self.output.busy = busy
        self.app._timed_tick()
        self.output.busy = False
        await self.pilot.pause()
        self.shown.append(screen_text(self.app))

    def newest(self) -> str:
        return f" w{self.told - 1}"


@asynccontextmanager
async def beating() -> AsyncIterator[Ticking]:
    now, output = [0.0], Output()
    source = ScriptedSource([Prompt(1, 2), *story(ROUNDS)[:-3]])
    app = DynaApp(source, View(fps=FPS), ticking=False, clock=lambda: now[0], output=output)
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        yield Ticking(app, source, output, pilot, now)


async def test_while_the_last_frame_is_on_its_way_rounds_are_taken_in_and_none_is_drawn() -> None:
    async with beating() as beats:
        await beats.beat(busy=False)
        for _ in range(BEATS):
            await beats.beat(busy=True)
        assert len(set(beats.shown)) == 1
        assert beats.app.viewpoint.work.rounds("dynatree") == beats.told
        for _ in range(BEATS):
            await beats.beat(busy=False)
            if beats.newest() in beats.shown[-1]:
                break
        assert beats.newest() in beats.shown[-1]


async def test_a_line_that_keeps_frames_waiting_gets_fewer_of_them() -> None:
    async with beating() as beats:
        for beat in range(3 * BEATS):
            await beats.beat(busy=beat % 3 > 0)
        assert beats.app.scene.meters.slow_line
        fresh = [shown != before for before, shown in zip(beats.shown, beats.shown[1:], strict=False)]
        assert 0 < sum(fresh[BEATS:]) <= BEATS


async def test_a_line_that_takes_each_frame_gets_all_of_them() -> None:
    async with beating() as beats:
        for _ in range(BEATS):
            await beats.beat(busy=False)
            assert beats.newest() in beats.shown[-1]
        assert not beats.app.scene.meters.slow_line
