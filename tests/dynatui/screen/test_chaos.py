"""Random sizes, keys and bytes during decoding, replay and following: the program stays usable.

`DYNATUI_RANDOM_STRINGS=10000` sends 10000 random strings of bytes instead of 80.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.geometry import Size

from dynatui.keymap import Keymap
from dynatui.record.reader import read_events
from dynatui.screen.app import DynaApp
from dynatui.session import Models, Session
from dynatui.sources.engine import EngineSource
from tests.dynatui.endless_engine import EndlessEngine, script
from tests.dynatui.pty_terminal import Start, Terminal, assert_left_clean, written
from tests.dynatui.screen.random_input import (
    ESCAPE,
    LARGEST,
    PAGES,
    commands_that_stay,
    random_bursts,
    random_bytes,
    sizes,
)
from tests.dynatui.scripted_runs import story
from tests.dynatui.terminal_grammar import forbidden_output

STRINGS = int(os.environ.get("DYNATUI_RANDOM_STRINGS", "80"))
NO_LEAVING = """
from dynatui.keymap import Keymap
from tests.dynatui.screen.random_input import commands_that_stay
Keymap.commands = commands_that_stay
"""


async def test_random_keys_and_sizes_while_it_decodes_break_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Keymap, "commands", commands_that_stay)
    source = EngineSource(
        Session(("one", "two", "three"), Models("big", "small")), EndlessEngine(rounds=150).load, rest_s=0.0
    )
    app = DynaApp(source)
    async with app.run_test(size=(120, 40)) as pilot:
        driver = app._driver
        assert driver is not None
        weather = random.Random(1)
        parser, size = XTermParser(), sizes(2, 60)
        for number, burst in enumerate(random_bursts(3, 150)):
            for message in parser.feed(burst):
                driver.process_message(message)
            if number % 4 == 0 and (new := next(size, None)):
                driver.process_message(events.Resize(Size(*new), Size(*new)))
            if weather.random() < 0.2:
                await asyncio.sleep(0)
                await pilot.pause()
        await pilot.pause()
        assert app.is_running
        assert app.viewpoint.work.state.failure is None
    assert source.close(5.0)
    assert app.return_code in (None, 0)
    for path in tmp_path.rglob("*.jsonl"):
        assert path.stat().st_size == 0 or read_events(path)


async def test_nothing_is_drawn_while_the_app_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    close = DynaApp._close_all

    async def slowly(app: DynaApp) -> None:
        await close(app)
        await asyncio.sleep(0.3)

    monkeypatch.setattr(DynaApp, "_close_all", slowly)
    source = EngineSource(Session(("one",), Models("big", "small")), EndlessEngine(rounds=150).load, rest_s=0.0)
    async with DynaApp(source).run_test(size=(120, 40)) as pilot:
        await pilot.pause()
    assert source.close(5.0)


def log_in(home: Path) -> str:
    return "".join(path.read_text() for path in home.rglob("*.log"))


def bombard(terminal: Terminal, home: Path, seed: int, strokes: int, resizes: int) -> None:
    bursts = list(random_bursts(seed, strokes))
    every = max(1, len(bursts) // resizes)
    size = sizes(seed, resizes)
    for number, burst in enumerate(bursts):
        terminal.send(burst)
        if burst in PAGES or burst.endswith(ESCAPE):
            terminal.read(0.06)  # most keys should reach the opened page
        if number % every == 0 and (new := next(size, None)):
            terminal.resize(*new)
    assert_answers(terminal, home)


def assert_answers(terminal: Terminal, home: Path) -> None:
    terminal.resize(80, 24)
    for _ in range(80):  # earlier keys may still open pages
        terminal.play(f"{ESCAPE * 3}".encode(), 0.1, b"?", 0.15)
        if "arrow keys, j k g G scroll" in terminal.shown:
            return
        if not terminal.child.isalive():
            break
    pytest.fail(f"it does not answer any more; the screen is\n{terminal.shown}\nthe log is\n{log_in(home)[-3000:]}")


def assert_ended_well(terminal: Terminal, home: Path) -> None:
    terminal.send("q")
    code = terminal.end(within_s=30)
    assert (code, "Traceback" in log_in(home)) == (0, False), log_in(home)[-3000:]
    assert_left_clean(terminal)
    assert forbidden_output(terminal.written, LARGEST, copies=True) == []


def test_random_input_in_a_terminal_while_it_decodes(start: Start, tmp_path: Path) -> None:
    terminal = start("-c", script(f'{NO_LEAVING}record = Path("run.jsonl"); engine = EndlessEngine(rounds=150)'))
    terminal.play(" w1", b"x", "files to")
    bombard(terminal, tmp_path, seed=14, strokes=125, resizes=20)
    for string in random_bytes(11, STRINGS):
        terminal.send(string)
        terminal.read(0.01)
    assert_answers(terminal, tmp_path)
    assert_ended_well(terminal, tmp_path)
    assert all(read_events(path) for path in tmp_path.rglob("*.jsonl"))
    assert any(tmp_path.glob("dynatui-*")), "the first key exports"


SHOWN = f"import sys\n{NO_LEAVING}from dynatui.main import main\nsys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(("seed", "arguments"), [(5, ("replay",)), (6, ("--follow",))], ids=["replay", "follow"])
def test_random_input_in_a_terminal_while_it_shows_a_recording(
    start: Start, tmp_path: Path, seed: int, arguments: tuple[str, ...]
) -> None:
    path = written(tmp_path / "run.jsonl", [*story(40), *story(20)])
    terminal = start("-c", SHOWN, *arguments, path)
    terminal.wait_for("a time")
    bombard(terminal, tmp_path, seed, strokes=125, resizes=20)
    assert_ended_well(terminal, tmp_path)
