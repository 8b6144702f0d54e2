"""The program in a real pseudo-terminal, on a busy trace: what it costs, and what becomes of it on a slow line."""

import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from benchmarks.screen import FRAME, SCREENS, Terminal, cost, steady_recording
from dynatui.keep.recording import read

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

ROOT = Path(__file__).parents[3]
SIZE = (120, 40)
THIN_LINE = 30_000
"""Bytes a second."""
BUSY_MACHINE = 2.5
"""CPU time a frame may take longer where other programs fight for the caches."""
CLOCK = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from msgspec import structs
from benchmarks.traces import TRACE, steady
from decoder.events import Round
from dynatui.screen import show
from dynatui.keep.recording import read
from dynatui.session import Models, Session, View

def load(report):
    def decode(prompt, config, steering):
        began = time.monotonic()
        for event in steady(read(TRACE), tokens_per_second=200, seconds=60):
            if isinstance(event, Round):
                time.sleep(max(0, began + event.wall_s - time.monotonic()))
                if steering.stopped:
                    return
                if event.method == "dynatree":
                    event = structs.replace(event, text=f" t{{time.monotonic():.2f}}!")
            yield event
    return decode

show.load_engine = lambda session: load
session = Session(("one",), Models("big", "small"), record=Path(sys.argv[1]), view=View(speed=1.0))
sys.exit(show.watch(session))
"""
"""Writes the time into the text, 200 tokens a second."""


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal in which an engine writes the time, and records it."""
    terminal = Terminal([sys.executable, "-c", CLOCK, str(tmp_path / "run.jsonl")], SIZE)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("size", [(80, 24), SIZE], ids=["80x24", "120x40"])
def test_a_screen_costs_no_more_than_it_may(tmp_path: Path, size: tuple[int, int]) -> None:
    fps, bar = SCREENS[size]
    found = cost(steady_recording(tmp_path, 3.0), size, "braille", fps, 3.0)
    assert found.bytes_per_second <= bar.bytes_per_second
    assert found.cpu_ms_per_frame <= BUSY_MACHINE * bar.cpu_ms_per_frame
    assert found.frames > fps, "it was drawn at all"


@pytest.mark.parametrize("size", [(80, 24), SIZE, (200, 60)], ids=["80x24", "120x40", "200x60"])
def test_what_was_patched_for_seconds_is_what_a_full_repaint_shows(tmp_path: Path, size: tuple[int, int]) -> None:
    recording = steady_recording(tmp_path, 3.0)
    terminal = Terminal([sys.executable, "-m", "dynatui", "replay", str(recording), "--speed", "1"], size)
    try:
        while FRAME not in terminal.written:
            terminal.read(0.1)
        terminal.read(4.0)
        terminal.press("P")
        terminal.read(2.0)
        patched = cells(terminal)
        terminal.press("?")
        terminal.read(1.0)
        helped = cells(terminal)
        terminal.press("\x1b")
        terminal.read(1.5)
        assert helped != patched
        assert {place: cell for place, cell in cells(terminal).items() if cell != patched[place]} == {}
    finally:
        terminal.close()


def cells(terminal: Terminal) -> dict[tuple[int, int], tuple[object, ...]]:
    """What the terminal shows at each place, but for the first line, where meters move."""
    screen = pyte.Screen(*terminal.size)
    pyte.ByteStream(screen).feed(bytes(terminal.written))
    found: dict[tuple[int, int], tuple[object, ...]] = {}
    for y in range(1, screen.lines):
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            under = (cell.bg, cell.underscore, cell.reverse)
            blank = cell.data == " " and not cell.reverse
            found[x, y] = under if blank else (cell.data, cell.fg, cell.bold, cell.italics, *under)
    return found


def test_a_thin_line_shows_the_present_and_the_program_ends_at_once(clock: Terminal) -> None:
    screen = pyte.Screen(*SIZE)
    stream = pyte.ByteStream(screen)
    lags, fed, began = list[float](), 0, float("inf")
    while time.monotonic() < began + 10:
        clock.read(0.1, bytes_per_second=THIN_LINE)
        stream.feed(bytes(clock.written[fed:]))
        fed = len(clock.written)
        shown = re.findall(r"t(\d+\.\d\d)!", " ".join(screen.display))
        began = min(began, time.monotonic()) if shown else began
        if time.monotonic() > began + 4:
            lags.append(time.monotonic() - max(map(float, shown)))
    assert len(lags) > 20
    assert max(lags) < 1.0
    pressed = time.monotonic()
    clock.press("q")
    while clock.process.poll() is None and time.monotonic() < pressed + 5:
        clock.read(0.1, bytes_per_second=THIN_LINE)
    assert clock.process.returncode == 0
    assert time.monotonic() - pressed < 2


def test_after_a_suspension_the_whole_screen_is_drawn_again(clock: Terminal) -> None:
    while b"accepted" not in clock.written:
        clock.read(0.1)
    clock.press("\x1a")
    state = Path(f"/proc/{clock.process.pid}/stat")
    end = time.monotonic() + 10
    while state.read_text().rpartition(")")[2].split()[0] != "T" and time.monotonic() < end:
        clock.read(0.1)
    clock.read(0.2)
    assert b"\x1b[?1049l" in clock.written, "the shell gets its screen back"
    clock.written.clear()
    clock.process.send_signal(signal.SIGCONT)
    clock.read(3.0)
    screen = pyte.Screen(*SIZE)
    pyte.ByteStream(screen).feed(bytes(clock.written))
    assert screen.display[0].startswith(" dynatui ")
    assert " quit" in screen.display[-1]
    assert all(line.strip() for line in screen.display)


@pytest.mark.parametrize("is_read", [True, False], ids=["in the middle of a frame", "when it takes nothing"])
def test_a_terminal_that_goes_away_ends_the_program_with_its_recording_closed(
    clock: Terminal, tmp_path: Path, *, is_read: bool
) -> None:
    recording = tmp_path / "run.jsonl"
    while not recording.exists() or recording.stat().st_size < 50_000:
        clock.read(0.1)
    if not is_read:
        time.sleep(0.7)
    clock.hang_up()
    clock.process.wait(2)
    assert clock.process.returncode == 129
    assert recording.read_bytes().endswith(b"\n")
    assert read(recording)
