"""Writes the screenshots: a recorded trace, played to a fixed place without clock or timer, at three sizes.

    python screenshots/make.py

The same trace gives the same bytes: Textual draws, and the one random name in its SVGs is replaced.
"""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from decoder.events import Event
from dynatui.app import DynaApp
from dynatui.playback import TraceSource
from dynatui.recording import read
from dynatui.session import View

HERE = Path(__file__).parent
TRACE = HERE.parent / "tests" / "traces" / "demo.jsonl"
SIZES = ((80, 24), (120, 40), (200, 60))
SHOWN = 0.62
"""Share of the first run that has been played."""


def standing_at(events: Sequence[Event], share: float, view: View | None = None) -> DynaApp:
    """The app, standing still at a share of the trace's first run."""
    source = TraceSource(events, speed=0.25)
    source.play(share * source.first_run_s)
    return DynaApp(source, view, ticking=False, clock=lambda: 0.0)


async def picture(events: Sequence[Event], size: tuple[int, int]) -> str:
    """The screen as SVG."""
    app = standing_at(events, SHOWN)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        svg = app.export_screenshot(title="dynatui")
    return re.sub(r"terminal-\d+-", "terminal-", svg)


def main() -> None:
    """Writes one file a size."""
    events = read(TRACE)
    for width, height in SIZES:
        path = HERE / f"dynatui-{width}x{height}.svg"
        path.write_text(asyncio.run(picture(events, (width, height))), encoding="utf-8")
        print(path.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
