"""The program in a pseudo-terminal on a busy recording: CPU time, output bytes, and behaviour on a slow line."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyte
import pytest

from benchmarks.screen import SCREENS, cost, steady_recording
from benchmarks.terminal import ALL_ANSWERS, Terminal
from dynatui.screen.panel_app import FPS

pytestmark = [pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")]

ROOT = Path(__file__).parents[3]
SIZE = (120, 40)
THIN_LINE, SLOW_LINE = 30_000, 4000
QUESTION = b"\x1b[5n"
FIRST_FRAMES = 5
EFFECT_S = 2.0
PATIENCE_S = 60.0
LAG_S, SOON_S = 3.0, 10.0
BUSY_MACHINE = 1.5
CLOCK = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from msgspec import structs
from benchmarks.screen import TRACE, steady
from decoder.events import Round
from dynatui.record.reader import read_events
from dynatui.screen import run
from dynatui.session import Models, Session, View
from dynatui.sources.engine import Loaded

def load(report, progress):
    def decode(prompt, config, steering):
        began = time.monotonic()
        for event in steady(read_events(TRACE), tokens_per_second=200, seconds=60):
            if isinstance(event, Round):
                time.sleep(max(0, began + event.wall_s - time.monotonic()))
                if steering.stopped:
                    return
                if event.method == "dynatree":
                    event = structs.replace(event, text=f" t{{time.monotonic():.2f}}!")
            yield event
    return Loaded(decode)

run.load_with_times = lambda session: load
session = Session(("one",), Models("big", "small"), record=Path(sys.argv[1]), view=View(speed=1.0))
sys.exit(run.watch(session))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    with ExitStack() as ending:

        def begin(size: tuple[int, int] = SIZE, **how: Any) -> Terminal:
            terminal = Terminal([sys.executable, "-c", CLOCK, str(tmp_path / "run.jsonl")], size, **how)
            ending.callback(terminal.close)
            return terminal

        yield begin


@pytest.mark.wall_time
def test_a_screen_costs_no_more_than_it_may(tmp_path: Path) -> None:
    fps, bar = SCREENS[SIZE]
    found = cost(steady_recording(tmp_path, 2.0), SIZE, "braille", fps, 2.0)
    assert found.bytes_per_second <= bar.bytes_per_second
    assert found.reference_tasks_per_frame <= BUSY_MACHINE * bar.reference_tasks_per_frame
    assert found.frames > fps, "it was drawn at all"


@pytest.mark.wall_time
def test_a_thin_line_shows_the_present_and_the_program_ends_at_once(start: Callable[..., Terminal]) -> None:
    clock = start()
    screen, fed = pyte.Screen(*SIZE), 0
    stream = pyte.ByteStream(screen)
    lags, began, end = list[float](), float("inf"), time.monotonic() + PATIENCE_S
    while time.monotonic() < min(began + 5, end):
        clock.read(0.1, bytes_per_second=THIN_LINE)
        stream.feed(bytes(clock.written[fed:]))
        fed = len(clock.written)
        shown = re.findall(r"t(\d+\.\d\d)!", " ".join(screen.display))
        began = min(began, time.monotonic()) if shown else began
        if time.monotonic() > began + 3:
            lags.append(time.monotonic() - max(map(float, shown)))
    assert len(lags) > 10
    assert median(lags) < LAG_S
    pressed = time.monotonic()
    clock.press("q")
    while clock.process.poll() is None and time.monotonic() < pressed + SOON_S:
        clock.read(0.1, bytes_per_second=THIN_LINE)
    assert clock.process.returncode == 0


@dataclass
class Seen:
    """The emulated screen behind a slow line."""

    terminal: Terminal
    bytes_per_second: int
    fed: int = 0

    def __post_init__(self) -> None:
        self.screen = pyte.Screen(*self.terminal.size)
        self.stream = pyte.ByteStream(self.screen)

    def read(self, seconds: float) -> str:
        self.terminal.read(seconds, bytes_per_second=self.bytes_per_second)
        self.stream.feed(bytes(self.terminal.written[self.fed :]))
        self.fed = len(self.terminal.written)
        return "\n".join(self.screen.display)

    def wait_s(self, *, shows: str = "", hides: str = "") -> float:
        """Seconds until the screen shows or hides these words."""
        began = time.monotonic()
        while shows not in (text := self.read(0.05)) or (hides and hides in text):
            assert time.monotonic() < began + PATIENCE_S, f"it shows\n{text}"
        return time.monotonic() - began


@pytest.mark.wall_time
def test_on_a_line_of_four_kilobytes_a_second_a_key_takes_effect_within_two_seconds(
    start: Callable[..., Terminal],
) -> None:
    seen = Seen(start(), SLOW_LINE)
    seen.wait_s(shows="!")
    seen.read(3.0)
    for key, shows, hides in (
        (" ", "FROZEN", ""),
        (" ", "", "FROZEN"),
        ("8", "╭─ Log", ""),
        ("?", "esc goes back", ""),
        ("\x1b", "", "esc goes back"),
        ("4", "╭─ Race", ""),
    ):
        seen.read(0.7)
        seen.terminal.press(key)
        assert seen.wait_s(shows=shows, hides=hides) < EFFECT_S, key


@pytest.mark.wall_time
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_first_full_frame_takes_a_slow_line_less_than_two_seconds(
    size: tuple[int, int], start: Callable[..., Terminal]
) -> None:
    terminal = start(size)
    while terminal.written.count(QUESTION) < FIRST_FRAMES:
        terminal.read(0.1)
    _, *frames = bytes(terminal.written).split(QUESTION)
    assert max(map(len, frames)) < EFFECT_S * SLOW_LINE


@pytest.mark.wall_time
@pytest.mark.parametrize("answers", [ALL_ANSWERS, {}], ids=["answers", "never answers"])
def test_a_fast_terminal_gets_every_frame_whether_it_answers_or_not(
    answers: Mapping[bytes, bytes], start: Callable[..., Terminal]
) -> None:
    terminal = start(answers=answers)
    while terminal.written.count(QUESTION) < FIRST_FRAMES:
        terminal.read(0.1)
    terminal.read(1.5)
    terminal.written.clear()
    terminal.read(2.0)
    assert terminal.written.count(QUESTION) >= 0.8 * 2 * FPS
