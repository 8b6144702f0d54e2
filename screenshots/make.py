"""Writes the screenshots: plays a trace up to a fixed point, without clock or timer, then presses a few keys.

    python screenshots/make.py

The same trace gives the same bytes: Textual's SVGs contain only one random name, which is replaced here.
"""

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path

from dynatui.record.reader import Runs
from dynatui.screen.app import DynaApp
from dynatui.session import View
from dynatui.sources.playback import TraceSource

HERE = Path(__file__).parent
TRACE = HERE.parent / "tests" / "traces" / "sampled.jsonl"
SPEED = 0.25
SHARE_OF_RUN = 0.78


@dataclass(frozen=True)
class Shot:
    name: str
    size: tuple[int, int] = (120, 40)
    keys: tuple[str, ...] = ()
    view: View = field(default_factory=View)


SHOTS = (
    Shot("dynatui-80x24", (80, 24)),
    Shot("dynatui-120x40"),
    Shot("dynatui-200x60", (200, 60)),
    Shot("inspect", keys=("i", *["left"] * 8, "o")),
    Shot("knobs", keys=("d",)),
    Shot("work", keys=("5",)),
    Shot("whatif", keys=("6",)),
    Shot("mask", keys=("t", "8")),
    Shot("light", view=View(theme="textual-light")),
    Shot("ascii", (80, 24), view=View(symbols="ascii", color=False)),
)


def standing_at(runs: Runs, share: float, view: View | None = None) -> DynaApp:
    source = TraceSource(runs, speed=SPEED)
    source.play(share * source.played_s[1])
    return DynaApp(source, view, ticking=False, clock=lambda: 0.0)


async def picture(runs: Runs, shot: Shot) -> str:
    app = standing_at(runs, SHARE_OF_RUN, shot.view)
    async with app.run_test(size=shot.size) as pilot:
        await pilot.pause()
        await pilot.press(*shot.keys)
        await pilot.pause()
        svg = app.export_screenshot(title="dynatui")
    return re.sub(r"terminal-\d+-", "terminal-", svg)


def main() -> None:
    runs = Runs(TRACE)
    for shot in SHOTS:
        path = HERE / f"{shot.name}.svg"
        path.write_text(asyncio.run(picture(runs, shot)), encoding="utf-8")
        print(path.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
