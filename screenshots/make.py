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
TRACES = HERE.parent / "tests" / "traces"
FIRST, TRACE = TRACES / "first.jsonl", TRACES / "sampled.jsonl"
SPEED = 0.25
SHARE_OF_RUN = 0.78
OPENING = 0.8
"""Share of the first run that is played in the pictures of the whole screen."""


@dataclass(frozen=True)
class Shot:
    name: str
    size: tuple[int, int] = (120, 40)
    trace: Path = TRACE
    share: float = SHARE_OF_RUN
    keys: tuple[str, ...] = ()
    view: View = field(default_factory=View)


SHOTS = (
    Shot("dynatui-80x24", (80, 24), FIRST, OPENING),
    Shot("dynatui-120x40", (120, 40), FIRST, OPENING),
    Shot("dynatui-200x60", (200, 60), FIRST, OPENING),
    Shot("inspect", keys=("i", *["left"] * 8, "o")),
    Shot("knobs", keys=("d",)),
    Shot("work", keys=("5",)),
    Shot("whatif", keys=("6",)),
    Shot("mask", keys=("t", "8")),
    Shot("server", trace=TRACES / "demo.jsonl", share=1.0, keys=("A",)),
    Shot("light", view=View(theme="textual-light")),
    Shot("ascii", (80, 24), view=View(symbols="ascii", color=False)),
)


def standing_at(runs: Runs, share: float, view: View | None = None) -> DynaApp:
    source = TraceSource(runs, speed=SPEED)
    source.play(share * source.played_s[1])
    return DynaApp(source, view, ticking=False, clock=lambda: 0.0)


async def picture(shot: Shot) -> str:
    app = standing_at(Runs(shot.trace), shot.share, shot.view)
    async with app.run_test(size=shot.size) as pilot:
        await pilot.pause()
        await pilot.press(*shot.keys)
        await pilot.pause()
        svg = app.export_screenshot(title="dynatui")
    return re.sub(r"terminal-\d+-", "terminal-", svg)


def main() -> None:
    for shot in SHOTS:
        path = HERE / f"{shot.name}.svg"
        path.write_text(asyncio.run(picture(shot)), encoding="utf-8")
        print(path.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
