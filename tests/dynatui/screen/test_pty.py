"""The program in a pseudo-terminal: start, prompts through standard input, end, and the restored terminal."""

import re
import time
from pathlib import Path

import pytest

from dynatui.record.recording import Recorder
from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import ENTER, LEAVE, ROOT, Start, Terminal, assert_left_clean, leave
from tests.dynatui.terminal_grammar import forbidden_output

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
FAULT = """
def fail(*arguments):
    token = "a private " + "token"
    raise AttributeError("a bug")
dynatui.state.timeline.Viewpoint.take = fail
"""
FROM_STANDARD_INPUT = f"r, w = os.pipe(); os.close(w); os.dup2(r, 0)\n{FULL}"
TAKEN = 'import dynatui.screen.commands.record as keep; keep.new_recording_path = lambda: Path("taken.jsonl")'
FULL_ERRORS = """
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
os.execv(sys.executable, [sys.executable, "-m", "dynatui", *sys.argv[1:]])
"""


def showing(start: Start, program: str, words: str, size: tuple[int, int] = (80, 24)) -> Terminal:
    terminal = start("-c", script(program), size=size)
    terminal.wait_for(words)
    return terminal


def test_text_streams_and_the_screen_survives_every_size(start_new: Start, recording: str) -> None:
    terminal = start_new("-m", "dynatui", "replay", recording, size=(120, 40))
    assert "a time at" in terminal.wait_for("round 10")
    for size in ((40, 10), (30, 3), (80, 24)):
        terminal.resize(*size)
        terminal.read(0.1)
    assert terminal.wait_until(lambda: "a time at" in terminal.shown and "3.00x" in terminal.shown)
    leave(terminal)


@pytest.mark.parametrize("program", [FULL, FROM_STANDARD_INPUT], ids=["error", "input that brought the prompt"])
def test_an_engine_error_is_shown_and_its_exit_code_kept_and_only_its_owner_reads_the_log(
    start: Start, tmp_path: Path, program: str
) -> None:
    terminal = showing(start, program, "take a smaller model", (120, 40))
    assert "R tries again" in terminal.shown
    leave(terminal, 3)
    assert [path.stat().st_mode & 0o77 for path in tmp_path.rglob("*.log")] == [0]


def test_a_fault_of_our_own_leaves_a_clean_terminal_and_names_the_log_which_shows_no_values_of_variables(
    start: Start, tmp_path: Path
) -> None:
    terminal = start("-c", script(FAULT))
    assert terminal.end() == 1
    assert_left_clean(terminal)
    assert "dynatui.log" in terminal.afterwards
    assert "Traceback" not in terminal.afterwards
    logged = "".join(path.read_text() for path in tmp_path.rglob("*.log"))
    assert "a bug" in logged
    assert "a private token" not in logged


def test_a_recording_that_is_deleted_while_nothing_is_decoded_is_told_at_the_end(start: Start, tmp_path: Path) -> None:
    terminal = showing(start, 'record = Path("run.jsonl")', " w9")
    terminal.play(b"P", "PAUSED", 0.3)
    (tmp_path / "run.jsonl").unlink()
    leave(terminal, 2)
    assert "dynatui: run.jsonl was deleted while it was written" in terminal.afterwards


@pytest.mark.parametrize("lost", [False, True])
def test_an_engine_that_hangs_is_left_behind_at_the_quit_key_and_if_the_terminal_is_lost(
    start: Start, *, lost: bool
) -> None:
    terminal, began = showing(start, HUNG, "loading a fake"), time.monotonic()
    if lost:
        terminal.hang_up()
    else:
        leave(terminal)
    assert time.monotonic() - began < HUNG_S / 2


def test_native_noise_goes_to_the_log_and_stays_out_of_the_picture(start: Start, tmp_path: Path) -> None:
    terminal = start("-c", script(NATIVE, 'quiet.set(); print("AFTER", flush=True)'))
    terminal.play(" w9", b"q")
    assert terminal.end() == 0
    before, _, after = terminal.written.partition(LEAVE)
    assert b"NOISE" not in before
    assert b"AFTER" in after, "afterwards the outputs are back"
    assert any(b"NOISE" in path.read_bytes() for path in tmp_path.rglob("*.log"))


def test_nothing_listens(start: Start) -> None:
    terminal = showing(start, "", " w9")
    process = Path(f"/proc/{terminal.child.pid}")
    links = {str(link.readlink()) for link in (process / "fd").iterdir()}
    tables = [(process / "net" / name).read_text() for name in ("tcp", "tcp6", "udp", "udp6")]
    known = {line.split()[9] for table in tables for line in table.splitlines()[1:]}
    assert not {link for link in links if link.startswith("socket:") and link[8:-1] in known}
    leave(terminal)


REFUSED = (
    (("--prompt-file", "/no/such/file"), "", "", "cannot read /no/such/file"),
    (("--prompt-file", "."), "", "", "Is a directory"),
    (("--record", "/no/such/folder/run.jsonl"), "", "", "cannot write /no/such/folder/run.jsonl"),
    (("--log-file", "/no/such/folder/log"), "", "", "cannot write the log"),
    (("--theme", "no-such"), "", "", "theme is 'no-such'"),
    (("replay", "/no/such/run.jsonl"), "", "", "cannot read /no/such/run.jsonl"),
    (("--follow", "/no/such/run.jsonl"), "", "", "cannot follow /no/such/run.jsonl"),
    (("replay", "RUN"), "TEXTUAL_COLOR_SYSTEM", "bogus", "unset it"),
    (("replay", "RUN", "RUN"), "TEXTUAL_COLOR_SYSTEM", "x" * 5000, "unset it"),
    (("replay", "RUN"), "COLUMNS", "100000", "unset it"),
    (("replay", "RUN", "RUN"), "LINES", "1" * 5000, "unset it"),
    (("replay", "RUN"), "TEXTUAL_LOG", "/no/such/folder/log", "unset TEXTUAL_LOG"),
    ((), "DYNATUI_CONFIG", "SETTINGS", "SETTINGS"),
)
"""Arguments, an environment variable and its value, and what is said of them."""
IN_TURN = """
import os, sys
from dynatui import main as cli
for arguments, variable, value in {cases!r}:
    os.environ |= {{variable: value}} if variable else {{}}
    print(cli.main(list(arguments)))
    os.environ.pop(variable, None)
"""


def test_what_is_wrong_at_the_start_is_one_line_and_no_screen(start: Start, recording: str, tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("theme = [")
    places = {"RUN": recording, "SETTINGS": str(settings)}
    cases = [
        ([places.get(each, each) for each in arguments], variable, places.get(value, value))
        for arguments, variable, value, _ in REFUSED
    ]
    terminal = start("-c", IN_TURN.format(cases=cases), size=(500, 60))
    assert terminal.end() == 0
    assert ENTER not in terminal.written
    lines = terminal.written.decode().splitlines()
    assert lines[1::2] == ["2"] * len(REFUSED)
    for (_, variable, _, said), line in zip(REFUSED, lines[::2], strict=True):
        assert line.startswith("dynatui: ")
        assert places.get(said, said) in line, variable
        assert len(line) < 400


def test_a_terminal_far_too_large_is_drawn_as_far_as_it_can_be_and_obeyed(
    start: Start, recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    monkeypatch.setattr(terminal._stream, "feed", lambda _text: None)  # a picture of that size would take seconds
    terminal.child.setwinsize(65535, 65535)
    while b"D0" not in terminal.written:
        assert terminal.goes_on()
        terminal.read(0.1)
    for lines, columns in ((40, 120), (60000, 60000)):
        terminal.child.setwinsize(lines, columns)
        terminal.read(0.5)
    began = time.monotonic()
    leave(terminal)
    assert time.monotonic() - began < 3
    assert max(int(found) for found in re.findall(rb"\x1b\[\d+;(\d+)H", terminal.written)) <= 1001


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_standard_error_that_takes_nothing_changes_no_exit_code(start: Start, recording: str) -> None:
    replayed, refused = start("-c", FULL_ERRORS, "replay", recording), start("-c", FULL_ERRORS, "replay", "nowhere")
    assert (replayed.end(), refused.end()) == (0, 2)
    assert " at a time" in replayed.shown


def test_a_torch_that_cannot_be_imported_is_a_panel(start_new: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "torch.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('libcudart.so is missing\\x1b[31m')")
    terminal = start_new("-m", "dynatui", PYTHONPATH=f"{broken.parent}:{ROOT}", size=(200, 24))
    assert "libcudart.so is missing␛[31m" in terminal.wait_for("R tries again")
    leave(terminal, 3)
    assert forbidden_output(terminal.written, (200, 24)) == []


def test_a_file_that_another_process_writes_is_not_recorded_to_and_a_note_says_so(start: Start, tmp_path: Path) -> None:
    with Recorder(tmp_path / "taken.jsonl"):
        terminal = showing(start, TAKEN, " w9", (120, 40))
        terminal.play(b"r", "another process is writing taken.jsonl")
        assert "REC" not in terminal.shown
    terminal.play(b"r", "recording to taken.jsonl")
    leave(terminal)


PROGRAM = """
import sys
from dynatui.__main__ import main
from dynatui.screen import run
from tests.dynatui.fake_engine import FakeEngine
run.load_with_times = FakeEngine().loader
sys.exit(main())
"""
SHELL = """
import os, sys
line = 'dynatui() { "$PYTHON" -c "$PROGRAM" "$@"; }; ' + sys.argv[1]
os.execvpe("bash", ["bash", "-c", line], {**os.environ, "PYTHON": sys.executable, "PROGRAM": sys.argv[2]})
"""


def in_bash(start_new: Start, line: str) -> Terminal:
    return start_new("-c", SHELL, line, PROGRAM, size=(120, 40))


@pytest.mark.parametrize(
    "line",
    [
        "mkfifo pipe; (sleep 0.1; echo It was late > pipe) & dynatui --prompt-file - < pipe",
        "echo It was late | dynatui --prompt-file /dev/stdin",
    ],
)
def test_a_prompt_through_standard_input_is_shown_and_keys_come_from_the_terminal(start_new: Start, line: str) -> None:
    terminal = in_bash(start_new, line)
    assert "It was late" in terminal.wait_for("Once upon")
    terminal.play(b"?", "arrow keys")
    leave(terminal)


def test_a_closed_standard_input_is_refused_in_one_line_before_the_screen(start_new: Start) -> None:
    terminal = in_bash(start_new, "dynatui --prompt-file - <&-")
    assert terminal.end() == 2
    assert "standard input is closed" in terminal.shown
    assert terminal.written.count(b"\n") == 1
    assert ENTER not in terminal.written


def test_a_prompt_that_is_to_be_typed_says_how_it_ends(start_new: Start) -> None:
    terminal = in_bash(start_new, "dynatui --prompt-file -")
    terminal.play("ctrl+d", b"It was late\n\x04")
    assert "It was late" in terminal.wait_for("Once upon")
    leave(terminal)
