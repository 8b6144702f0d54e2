"""Foreign text in a pseudo-terminal is shown, but never interpreted; all output bytes are checked."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.dynatui.endless_engine import script
from tests.dynatui.hostile_text import hostile_event, renamed
from tests.dynatui.pty_terminal import Start, Terminal, leave, written
from tests.dynatui.scripted_runs import story
from tests.dynatui.terminal_grammar import forbidden_output

TOUR = (
    *"123456789",
    *("t", "toooo", "ebv", "evv"),
    *("1i", "\x1b[D\x1b[D\x1b[A", "\x1b[Ht", "t2", "1\x1b[F"),
    *("k\x1b[B", "k", "  f", "x"),
)
BACK = "esc goes back"
PAGES = {"?": BACK, "\x10": "words of a line"}
FULL = (120, 40)


def toured(terminal: Terminal, keys: tuple[str, ...] = TOUR, pages: Mapping[str, str] = PAGES) -> str:
    seen = list[str]()
    for key in keys:
        terminal.send(key)
        seen.append(terminal.read_frame(0.15))
    for key, words in pages.items():
        terminal.send(key)
        seen.append(terminal.wait_for(words))
        close(terminal, words)
    return "\n".join(seen)


def replaying(start: Start, *paths: str) -> Terminal:
    return start("-m", "dynatui", "replay", *paths, "--speed", "20", size=FULL)


def close(terminal: Terminal, words: str) -> None:
    terminal.send("\x1b")
    assert terminal.wait_until(lambda: words not in terminal.shown), f"the page with {words!r} is not closed"


def leave_unharmed(terminal: Terminal, code: int = 0) -> None:
    leave(terminal, code)
    assert forbidden_output(terminal.written, FULL) == []


def assert_shown(seen: str, *names: str) -> None:
    for name in names:
        assert f"{name}␛" in seen, f"{name} was never shown"


def test_a_hostile_recording_is_shown_in_every_panel_and_neither_obeyed_nor_clicked(
    start: Start, tmp_path: Path
) -> None:
    path = written(tmp_path / "hostile.jsonl", [renamed(hostile_event(event)) for event in story(4)])
    terminal = replaying(start, path)
    seen = terminal.wait_for("ar␛") + terminal.play("ended", 0.4, b"a", "PRESS")
    line = next(place for place, row in enumerate(terminal.rows) if "PRESS" in row)
    column = terminal.rows[line].index("PRESS")
    for x in range(column - 18, column + 6):
        terminal.send(f"\x1b[<0;{x + 1};{line + 1}M\x1b[<0;{x + 1};{line + 1}m")
    seen += terminal.wait_for("INSPECT") + toured(terminal)
    assert_shown(seen, "PROMPT", "PIECE", "TEXT", "TARGET", "dy", "ar")
    leave_unharmed(terminal)
    assert_shown(terminal.afterwards, "PROMPT")


LIVE = """
from tests.dynatui.hostile_text import hostile, hostile_event, name
engine = EndlessEngine(foreign=hostile_event, pause_s=0.02, report=hostile("REPORT"))
prompts, models = (hostile("ASKED"), hostile("OTHER")), Models(name("MODEL"), name("SMALL"))
record = Path(name("RECORD").replace("/", ""))
"""


def hostile_folder(parent: Path) -> Path:
    folder = parent / os.fsdecode(b"FOLDER\x1b]0;PWNED\x07\x9b\xff[@click=app.leave]\xe2\x80\xae\n")
    folder.mkdir()
    return folder


def test_a_hostile_model_prompt_and_folder_are_shown_while_decoding_and_never_obeyed(
    start: Start, tmp_path: Path
) -> None:
    folder = hostile_folder(tmp_path)
    terminal = start("-c", script(LIVE), size=FULL, cwd=folder, XDG_STATE_HOME=str(folder / "state"))
    terminal.wait_for("TEXT␛")
    seen = toured(terminal, ("1P", "..", ".", "Pi", "\x1b", "r", "r", "7", "8", "]", "x", "c"), {"y": BACK, "B": BACK})
    terminal.send("E")
    seen += terminal.wait_for("ASKED␛")
    terminal.send("\x1b[200~PASTED\x1b[31m\x07[/x]\x9b\u202e\x1b[201~typed\x12")
    assert terminal.wait_until(lambda: "Edit the prompt" not in terminal.shown)
    terminal.wait_for("TEXT␛")
    assert_shown(seen, "PROMPT", "PIECE", "TEXT", "ASKED")
    assert "FOLDER␛" in seen, "the place of the recording and of the export"
    leave(terminal)
    assert b"\x1b]52;c;" in terminal.written, "text and command line are copied"
    assert forbidden_output(terminal.written, FULL, copies=True) == []
    assert_shown(terminal.afterwards, "PROMPT", "FOLDER")
    modes = {path.stat().st_mode & 0o77 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0}, "recordings and exports are their owner's alone"


def test_two_hostile_recordings_side_by_side_are_shown_and_never_obeyed(start: Start, tmp_path: Path) -> None:
    events = [hostile_event(event) for event in story(4)]
    paths = [written(hostile_folder(tmp_path) / "one.jsonl", events), written(tmp_path / "two.jsonl", events)]
    terminal = replaying(start, *paths)
    terminal.wait_for("TEXT␛")
    toured(terminal, ("\x1b[D", "\x1b[H", "\x1b[F", "\t", "v", " "), {"?": "this page"})
    leave_unharmed(terminal)


def test_a_hostile_recording_that_is_followed_is_shown_and_never_obeyed(start: Start, tmp_path: Path) -> None:
    folder = hostile_folder(tmp_path)
    path = written(folder / "run.jsonl", [hostile_event(event) for event in story(2)])
    terminal = start("-m", "dynatui", "--follow", path, size=FULL)
    terminal.wait_for("TEXT␛")
    Path(path).unlink()
    assert "FOLDER" in terminal.wait_for("was removed")
    leave_unharmed(terminal, 2)


FAILING = """
from tests.dynatui.hostile_text import hostile
def load(report, progress):
    report(hostile("REPORT"))
    raise RuntimeError(hostile("FAULT"))
engine.load = load
"""


def test_hostile_errors_are_shown_and_never_obeyed(start: Start) -> None:
    terminal = start("-c", script(FAILING), size=FULL)
    seen = terminal.wait_for("R tries again") + toured(terminal, ("7", "8", "e", "R"), {})
    assert_shown(seen, "FAULT")
    leave_unharmed(terminal, 3)


LINES = """
import os, sys
from pathlib import Path
from dynatui import main as cli
from tests.dynatui.hostile_text import ACTS, hostile, name
for number, act in enumerate((hostile("ALL"), *ACTS)):
    arguments = (
        [act], ["--" + act], ["replay", act], ["--prompt-file", act], ["--theme", act, "replay"], ["--preset", act],
        ["--methods", act], ["--branching", act], ["--follow", act], ["--record", act + "/x/y"], ["--seed", act],
        ["--log-file", act + "/x/y"], ["replay", RUN, "--theme", act], ["replay", RUN, "--symbols", act],
    )
    for chosen in arguments if number == 0 else (arguments[number % len(arguments)],):
        print(cli.main(chosen))
"""


def test_one_line_errors_show_foreign_text_and_never_obey_it(start: Start, tmp_path: Path) -> None:
    run = written(tmp_path / "run.jsonl", story(1))
    terminal = start("-c", LINES.replace("RUN", repr(run)), size=(200, 60))
    assert terminal.end() == 0
    said = terminal.written.decode()
    assert set(said.replace("\r", "").split("\n")) & {"0", "1", "3", "130"} == set(), "all of them are refused"
    assert_shown(said, "ALL")
    assert forbidden_output(terminal.written, (200, 60)) == []


PRINTED = """
import sys
from dynatui import main as cli
from dynatui.cli import headless
from dynatui.terminal import streams
from dynatui.session import Session
from dynatui.record.transcript import Transcript
from dynatui.sources.engine import Loaded
from tests.dynatui.hostile_text import hostile, hostile_event
from tests.dynatui.endless_engine import EndlessEngine
engine = EndlessEngine(rounds=3, foreign=hostile_event)
def load(report, progress):
    report(hostile("REPORT"))
    return Loaded(engine.decode)
for as_json in (False, True):
    cli.main(["replay", sys.argv[1], "--json" if as_json else "--headless"])
    session = Session((hostile("ASKED"),))
    headless.run(session, Transcript(*streams.for_printing(), as_json=as_json), load)
"""


def test_what_is_printed_without_a_screen_is_clean_on_a_terminal(start: Start, tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", [renamed(hostile_event(event)) for event in story(3)])
    terminal = start("-c", PRINTED, path)
    assert terminal.end() == 0
    assert_shown(terminal.written.decode(), "TEXT", "PIECE", "TARGET", "REPORT", "ERROR", "dy")
    assert forbidden_output(terminal.written, (80, 24)) == []


BAD = (
    *(b"\x1b]0;title\x07", b"\x1b]52;c;UFdORUQ=\x07", b"\x1b[2J", b"\x1b[5;8m", b"\x1b[38;5;999m", b"\x1b[99;1H"),
    *(b"\x1b[?1002h", b"\x1b[5;90r", b"\x1bPq\x1b\\", b"\x1bc", "\x9b".encode(), b"\x9b", b"\x07", b"a\rb"),
    *(b"\x7f", "\u202e".encode(), "\u2028".encode(), b"\x1b"),
)


@pytest.mark.parametrize("bad", BAD)
def test_the_list_of_what_a_terminal_may_get_leaves_this_out(bad: bytes) -> None:
    good = b"\x1b[?1049h\x1b[2;3H\x1b[1;38;5;12;48;2;0;0;255mtext\x1b[m\r\n\x1b[3C\x1b]22;text\x07\x1b[>25u"
    assert forbidden_output(good, (80, 24)) == []
    assert len(forbidden_output(good + bad + good, (80, 24))) >= 1
