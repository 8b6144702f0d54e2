"""The program in a pseudo-terminal: start, end, and the restored terminal."""

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from decoder.events import encode
from dynatui.record.recording import Recorder
from tests.dynatui.attach.scripted_session import session
from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import (
    ENTER,
    LEAVE,
    ROOT,
    Start,
    Terminal,
    assert_left_clean,
    assert_modes_given_back,
    written,
)
from tests.dynatui.scripted_runs import story
from tests.dynatui.terminal_grammar import forbidden_output

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")]

FULL = """
def load(report, progress):
    report("loading a fake")
    raise DeviceError("the memory of cuda:0 is full; take a smaller model")
engine.load = load
"""
HUNG_S = 60.0
HUNG = f"""
def load(report, progress):
    report("loading a fake")
    time.sleep({HUNG_S})
engine.load = load
"""
NATIVE = """
quiet = threading.Event()
def shout():
    while not quiet.is_set():
        os.write(1, b"NOISE" * 9)
        os.write(2, b"\\x1b[2JNOISE" * 9)
        print("NOISE", file=sys.stderr)
        time.sleep(0.001)
class Noisy(EndlessEngine):
    def load(self, report, progress):
        threading.Thread(target=shout, daemon=True).start()
        return super().load(report, progress)
engine = Noisy()
"""


SLOWLY = ("--speed", "0.05")


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_a_key_leaves_a_clean_terminal(start_new: Start, recording: str, key: str) -> None:
    terminal = start_new("-m", "dynatui", "replay", recording, *SLOWLY)
    terminal.wait_for("L-bar")
    terminal.send(key)
    assert terminal.end() == 0
    assert_left_clean(terminal)


def test_a_garbled_screen_is_drawn_anew(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording, *SLOWLY)
    terminal.wait_for("L-bar")
    terminal.send("P")
    terminal.wait_for("PAUSED")
    terminal.read(0.3)
    terminal.screen.reset()
    assert "L-bar" not in terminal.read(0.3)
    terminal.send("\x0c")
    terminal.wait_for("L-bar")
    assert "PAUSED" in terminal.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_clean_terminal(start: Start, recording: str, number: signal.Signals) -> None:
    terminal = start("-m", "dynatui", "replay", recording, *SLOWLY)
    terminal.wait_for("L-bar")
    terminal.child.kill(number)
    assert terminal.end() == 128 + number
    assert_left_clean(terminal)


def test_text_streams_and_the_screen_survives_every_size(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording, size=(120, 40))
    assert "a time at" in terminal.wait_for("round 10")
    for size in ((40, 10), (30, 3), (200, 60), (80, 24)):
        terminal.resize(*size)
        terminal.read(0.3)
        assert "a time at" in terminal.wait_for("3.00x")
        assert terminal.child.isalive()
    terminal.send("q")
    assert terminal.end() == 0


def test_an_engine_error_is_shown_and_its_exit_code_kept(start: Start) -> None:
    terminal = start("-c", script(FULL))
    assert "R tries again" in terminal.wait_for("take a smaller model")
    terminal.send("q")
    assert terminal.end() == 3
    assert_left_clean(terminal)


def test_a_fault_of_our_own_leaves_a_clean_terminal_and_names_the_log(start: Start) -> None:
    terminal = start("-c", script("dynatui.state.timeline.Viewpoint.take = None"))
    assert terminal.end() == 1
    assert_left_clean(terminal)
    assert "dynatui.log" in terminal.afterwards
    assert "Traceback" not in terminal.afterwards


def test_the_log_of_a_fault_of_our_own_shows_no_values_of_variables(start: Start, tmp_path: Path) -> None:
    fault = """
def fail(*arguments):
    token = "a private " + "token"
    raise AttributeError("a bug")
dynatui.state.timeline.Viewpoint.take = fail
"""
    assert start("-c", script(fault)).end() == 1
    log = "".join(path.read_text() for path in tmp_path.rglob("*.log"))
    assert "a bug" in log
    assert "a private token" not in log


def test_a_recording_that_is_deleted_while_nothing_is_decoded_is_told_at_the_end(start: Start, tmp_path: Path) -> None:
    terminal = start("-c", script('record = Path("run.jsonl")'))
    terminal.wait_for(" w9")
    terminal.send("P")
    terminal.wait_for("PAUSED")
    terminal.read(0.3)
    (tmp_path / "run.jsonl").unlink()
    terminal.send("q")
    assert terminal.end() == 2
    assert "dynatui: run.jsonl was deleted while it was written" in terminal.afterwards


def test_an_engine_that_hangs_is_left_behind(start: Start) -> None:
    terminal = start("-c", script(HUNG))
    terminal.wait_for("loading a fake")
    began = time.monotonic()
    terminal.send("q")
    assert terminal.end() == 0
    assert time.monotonic() - began < HUNG_S / 2
    assert_left_clean(terminal)


def test_losing_the_terminal_ends_the_program_though_the_engine_hangs(start: Start) -> None:
    terminal = start("-c", script(HUNG))
    terminal.wait_for("loading a fake")
    assert terminal.hang_up() < HUNG_S / 2


def test_native_noise_goes_to_the_log_and_stays_out_of_the_picture(start: Start, tmp_path: Path) -> None:
    terminal = start("-c", script(NATIVE, 'quiet.set(); print("AFTER", flush=True)'))
    terminal.wait_for(" w9")
    terminal.send("q")
    assert terminal.end() == 0
    before, _, after = terminal.written.partition(LEAVE)
    assert b"NOISE" not in before
    assert b"AFTER" in after, "afterwards the outputs are back"
    logs = [path.read_bytes() for path in tmp_path.rglob("*.log")]
    assert any(b"NOISE" in log for log in logs)


def test_the_keyboard_works_when_the_prompt_came_through_standard_input(start: Start) -> None:
    terminal = start("-c", script(f"r, w = os.pipe(); os.close(w); os.dup2(r, 0)\n{FULL}"))
    terminal.wait_for("take a smaller model")
    terminal.send("q")
    assert terminal.end() == 3
    assert_left_clean(terminal)


@pytest.fixture(params=["monitor", "compare", "attach"])
def screen(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> tuple[Terminal, str]:
    run, server = written(tmp_path / "run.jsonl", story(10)), tmp_path / "server.jsonl"
    server.write_bytes(b"".join(map(encode, session(30))))
    started, shows = {
        "monitor": (("-c", script()), "L-bar"),
        "compare": (("-m", "dynatui", "replay", run, run), "whole run"),
        "attach": (("-m", "dynatui", "replay", str(server), "--speed", "30"), "replay ended"),
    }[request.param]
    terminal = start(*started, size=(120, 40))
    terminal.wait_for(shows)
    return terminal, shows


def filled(terminal: Terminal) -> set[int]:
    return {number for number, row in enumerate(terminal.rows) if row.strip()}


def test_ctrl_z_and_a_signal_give_the_terminal_back_and_fg_takes_it_again(screen: tuple[Terminal, str]) -> None:
    terminal, shows = screen
    terminal.read(0.3)
    before = filled(terminal)
    terminal.send("\x1a")
    assert terminal.wait_until(lambda: LEAVE in terminal.written)
    terminal.read(0.2)
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    terminal.screen.erase_in_display(2)
    terminal.child.kill(signal.SIGCONT)
    assert terminal.wait_until(lambda: terminal.written.count(ENTER) == 2)
    terminal.wait_for(shows)
    assert terminal.wait_until(lambda: filled(terminal) >= before), "every line is drawn again"
    terminal.child.kill(signal.SIGTSTP)
    assert terminal.wait_until(lambda: terminal.written.count(LEAVE) == 2)
    terminal.read(0.2)
    terminal.child.kill(signal.SIGCONT)
    assert terminal.wait_until(lambda: terminal.written.count(ENTER) == 3)
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal, screens=3)


def test_it_goes_on_after_a_stop_that_it_was_not_told_of(screen: tuple[Terminal, str]) -> None:
    terminal, shows = screen
    for stop in (signal.SIGSTOP, signal.SIGCONT):
        terminal.child.kill(stop)
        terminal.read(0.3)
        terminal.screen.erase_in_display(2)
        terminal.child.kill(signal.SIGCONT)
        terminal.wait_for(shows)
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal, screens=terminal.written.count(ENTER))
    assert_modes_given_back(terminal)


def test_signals_to_go_on_may_interrupt_each_other(start: Start) -> None:
    terminal = start("-c", script(after="import signal; signal.raise_signal(signal.SIGCONT)"), size=(120, 40))
    terminal.wait_for("L-bar")
    for pause_s in (0.0, 0.001, 0.01, 0.05) * 3:
        terminal.child.kill(signal.SIGCONT)
        terminal.read(pause_s)
        terminal.screen.erase_in_display(2)
        terminal.child.kill(signal.SIGCONT)
        terminal.wait_for("L-bar")
    terminal.send("q")
    assert terminal.end() == 0, "a signal after the app's end does no harm either"
    assert_modes_given_back(terminal)


def test_ctrl_l_draws_a_garbled_screen_anew(screen: tuple[Terminal, str]) -> None:
    terminal, shows = screen
    terminal.read(0.3)
    terminal.screen.erase_in_display(2)
    assert shows not in terminal.shown
    terminal.send("\x0c")
    terminal.wait_for(shows)
    terminal.send("q")
    assert terminal.end() == 0


def test_nothing_listens(start: Start) -> None:
    terminal = start("-c", script())
    terminal.wait_for(" w9")
    assert inet_sockets(terminal.child.pid) == set()
    terminal.send("q")
    assert terminal.end() == 0


def inet_sockets(process: int) -> set[str]:
    links = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir()}
    tables = [Path(f"/proc/{process}/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6")]
    known = {line.split()[9] for table in tables for line in table.splitlines()[1:]}
    return {link for link in links if link.startswith("socket:") and link[8:-1] in known}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prompt-file", "/no/such/file"), "cannot read /no/such/file"),
        (("--prompt-file", "."), "Is a directory"),
        (("--record", "/no/such/folder/run.jsonl"), "cannot write /no/such/folder/run.jsonl"),
        (("--log-file", "/no/such/folder/log"), "cannot write the log"),
        (("--theme", "no-such"), "theme is 'no-such'"),
        (("replay", "/no/such/run.jsonl"), "cannot read /no/such/run.jsonl"),
        (("--follow", "/no/such/run.jsonl"), "cannot follow /no/such/run.jsonl"),
    ],
    ids=lambda value: "".join(value).strip("-"),
)
def test_what_is_wrong_at_the_start_is_one_line_and_no_screen(
    start: Start, arguments: tuple[str, ...], said: str
) -> None:
    terminal = start("-m", "dynatui", *arguments, size=(500, 24))
    assert terminal.end() == 2
    assert ENTER not in terminal.written
    assert terminal.written.startswith(b"dynatui: ")
    assert terminal.written.count(b"\n") == 1
    assert said in terminal.written.decode()


@pytest.mark.parametrize(
    ("files", "variable", "value"),
    [
        (1, "TEXTUAL_COLOR_SYSTEM", "bogus"),
        (2, "TEXTUAL_COLOR_SYSTEM", "x" * 5000),
        (1, "COLUMNS", "100000"),
        (2, "LINES", "1" * 5000),
        (1, "TEXTUAL_LOG", "/no/such/folder/log"),
    ],
)
def test_a_variable_that_no_screen_can_obey_is_one_line(
    start: Start, recording: str, files: int, variable: str, value: str
) -> None:
    terminal = start("-m", "dynatui", "replay", *[recording] * files, **{variable: value}, size=(500, 24))
    assert terminal.end() == 2
    assert ENTER not in terminal.written
    assert terminal.written.startswith(b"dynatui: ")
    assert terminal.written.count(b"\n") == 1
    assert len(terminal.written) < 400
    assert f"unset {variable}" in terminal.written.decode() or "; unset it" in terminal.written.decode()


def test_a_terminal_far_too_large_is_drawn_as_far_as_it_can_be_and_obeyed(
    start: Start, recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    monkeypatch.setattr(terminal._stream, "feed", lambda _text: None)  # a picture of that size would take seconds
    terminal.child.setwinsize(65535, 65535)
    while b"D0" not in terminal.written:
        assert terminal.goes_on()
        terminal.read(0.1)
    terminal.child.setwinsize(40, 120)
    terminal.read(0.5)
    terminal.child.setwinsize(60000, 60000)
    terminal.read(0.5)
    began = time.monotonic()
    terminal.send("q")
    assert terminal.end() == 0
    assert time.monotonic() - began < 3
    assert_left_clean(terminal)
    columns = [int(found) for found in re.findall(rb"\x1b\[\d+;(\d+)H", terminal.written)]
    assert max(columns) <= 1001


FULL_ERRORS = """
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
os.execv(sys.executable, [sys.executable, "-m", "dynatui", *sys.argv[1:]])
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_standard_error_that_takes_nothing_changes_no_exit_code(start: Start, recording: str) -> None:
    replayed, refused = start("-c", FULL_ERRORS, "replay", recording), start("-c", FULL_ERRORS, "replay", "nowhere")
    assert (replayed.end(), refused.end()) == (0, 2)
    assert " at a time" in replayed.shown


def test_broken_settings_are_one_line_with_the_place(start_new: Start, tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("theme = [")
    terminal = start_new("-m", "dynatui", DYNATUI_CONFIG=str(settings), size=(500, 24))
    assert terminal.end() == 2
    assert ENTER not in terminal.written
    assert terminal.written.count(b"\n") == 1
    assert str(settings) in terminal.written.decode()


def test_no_folder_for_temporary_files_is_a_panel(start_new: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "torch.py"
    broken.parent.mkdir()
    broken.write_text("raise FileNotFoundError(2, 'No usable temporary directory found in []')")
    terminal = start_new("-m", "dynatui", PYTHONPATH=f"{broken.parent}:{ROOT}", size=(200, 24))
    assert "set TMPDIR to a writable folder" in terminal.wait_for("R tries again")
    terminal.send("q")
    assert terminal.end() == 3


def test_a_torch_that_cannot_be_imported_is_a_panel(start_new: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "torch.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('libcudart.so is missing\\x1b[31m')")
    terminal = start_new("-m", "dynatui", PYTHONPATH=f"{broken.parent}:{ROOT}")
    assert "libcudart.so is missing␛[31m" in terminal.wait_for("R tries again")
    terminal.send("q")
    assert terminal.end() == 3
    assert forbidden_output(terminal.written, (80, 24)) == []
    assert_left_clean(terminal)


def test_a_model_that_is_not_there_is_a_panel(start: Start) -> None:
    terminal = start("-m", "dynatui", "--target", "/no/such/target", "--draft", "/no/such/draft")
    assert "R tries again" in terminal.wait_for("no folder /no/such/target")
    terminal.send("q")
    assert terminal.end() == 3
    assert_left_clean(terminal)


TAKEN = 'import dynatui.screen.commands.record as keep; keep.new_recording_path = lambda: Path("taken.jsonl")'


def test_a_file_that_another_process_writes_is_not_recorded_to_and_a_note_says_so(start: Start, tmp_path: Path) -> None:
    with Recorder(tmp_path / "taken.jsonl"):
        terminal = start("-c", script(TAKEN), size=(120, 40))
        terminal.wait_for(" w9")
        terminal.send("r")
        terminal.wait_for("another process is writing taken.jsonl")
        assert "REC" not in terminal.shown
    terminal.send("r")
    terminal.wait_for("recording to taken.jsonl")
    terminal.send("q")
    assert terminal.end() == 0


def test_only_its_owner_reads_the_log(start: Start, tmp_path: Path) -> None:
    terminal = start("-c", script(FULL), size=(120, 40))
    terminal.wait_for("R tries again")
    terminal.send("q")
    assert terminal.end() == 3
    assert [path.stat().st_mode & 0o77 for path in tmp_path.rglob("*.log")] == [0]
