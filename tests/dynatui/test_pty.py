"""The program in a real pseudo-terminal: what it leaves behind, and what never reaches the terminal."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pexpect
import pyte
import pytest
from msgspec import structs

from decoder.events import Event, Knob, Round, Run, encode
from dynatui.recording import read
from tests.dynatui.render.scripted import HOSTILE, story

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

ROOT = Path(__file__).parents[2]
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
FAKE_LIVE = """
import sys
from decoder.errors import DeviceError
from dynatui import show
from dynatui.session import Models, Session
def load(report):
    report("loading a fake")
    {load}
show.load_engine = lambda session: load
code = show.watch(Session(("one",), Models("big", "small")))
print("AFTER", flush=True)
sys.exit(code)
"""
HUNG = "import time; time.sleep(60)"
FULL = 'raise DeviceError("the memory of cuda:0 is full; take a smaller model")'
NATIVE = 'import os; os.write(1, b"NOISE" * 9); os.write(2, b"NOISE" * 9); raise DeviceError("end")'


@dataclass
class Terminal:
    """A program in a terminal of its own, with everything that it wrote."""

    child: "pexpect.spawn[str]"
    screen: pyte.Screen
    written: str = ""
    stream: pyte.Stream = field(init=False)

    def __post_init__(self) -> None:
        self.stream = pyte.Stream(self.screen)

    def read(self, seconds: float = 0.05) -> str:
        """What the screen shows after a little while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                chunk = self.child.read_nonblocking(65536, timeout=0.02)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                break
            self.written += chunk
            self.stream.feed(chunk)
        return "\n".join(self.screen.display)

    def wait_for(self, text: str) -> str:
        """The screen once it shows a text."""
        for _ in range(300):
            shown = self.read()
            if text in shown:
                return shown
        pytest.fail(f"{text!r} never came; the screen is\n{shown}")

    def end(self) -> int:
        """The exit code; a signal's number below zero."""
        for _ in range(300):
            self.read()
            if not self.child.isalive():
                break
        self.read(0.2)
        self.child.close(force=True)
        return -self.child.signalstatus if self.child.signalstatus else self.child.exitstatus or 0

    def resize(self, columns: int, lines: int) -> None:
        """Another size."""
        self.child.setwinsize(lines, columns)
        self.screen.resize(lines, columns)


Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts Python with arguments in a terminal."""
    begun: list[Terminal] = []

    def begin(*arguments: str, size: tuple[int, int] = (80, 24)) -> Terminal:
        clean = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
        environment = {**clean, "TERM": "xterm-256color", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        child = pexpect.spawn(
            sys.executable,
            list(arguments),
            cwd=tmp_path,
            env=environment,
            dimensions=size[::-1],
            encoding="utf-8",
            codec_errors="replace",
            timeout=20,
        )
        begun.append(Terminal(child, pyte.Screen(*size)))
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.child.close(force=True)


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """A recording that takes about a second to play."""
    return written(tmp_path / "run.jsonl", story(10))


def written(path: Path, events: list[Event]) -> str:
    """The path of a recording of these events."""
    path.write_bytes(b"".join(map(encode, events)))
    return str(path)


def assert_left_clean(terminal: Terminal) -> None:
    """The alternate screen and the hidden cursor are given back; the mouse was never taken."""
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    assert "\x1b[?1000h" not in terminal.written
    assert "\x1b[?25h" in terminal.written[max(0, terminal.written.rindex(LEAVE) - 200) :]


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_a_key_leaves_a_clean_terminal(start: Start, recording: str, key: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    terminal.wait_for("tokens/round")
    terminal.child.send(key)
    assert terminal.end() == 0
    assert_left_clean(terminal)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_clean_terminal(start: Start, recording: str, number: signal.Signals) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    terminal.wait_for("tokens/round")
    terminal.child.kill(number)
    assert terminal.end() == 128 + number
    assert_left_clean(terminal)


def test_text_streams_and_the_screen_survives_every_size(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording, size=(120, 40))
    assert "a time at" in terminal.wait_for("round 9")
    for size in ((40, 10), (30, 3), (200, 60), (80, 24)):
        terminal.resize(*size)
        terminal.read(0.4)
        assert "dynatui" in terminal.wait_for("dynatui")
        assert terminal.child.isalive()
    terminal.child.send("q")
    assert terminal.end() == 0


def hostile(event: Event) -> Event:
    """The event with every text in it replaced."""
    match event:
        case Run():
            return structs.replace(event, prompt=HOSTILE, target=HOSTILE, draft=HOSTILE, device=HOSTILE)
        case Round():
            return structs.replace(event, text=HOSTILE, pieces=[HOSTILE] * len(event.pieces))
        case _:
            return event


def test_nothing_hostile_of_a_recording_reaches_the_terminal(start: Start, tmp_path: Path) -> None:
    events = [hostile(event) for event in story(4)]
    terminal = start("-m", "dynatui", "replay", written(tmp_path / "hostile.jsonl", events), size=(120, 40))
    terminal.wait_for("round 3")
    terminal.child.send("2")
    terminal.read(0.3)
    terminal.child.send("q")
    assert terminal.end() == 0
    assert "]52;c" in terminal.written, "the text itself is shown"
    for raw in ("\x1b]52", "\x1b[2J\x9b", "\x9b31m", "\u202e", "\x7f"):
        assert raw not in terminal.written


def test_an_engine_error_is_shown_and_its_exit_code_kept(start: Start) -> None:
    terminal = start("-c", FAKE_LIVE.format(load=FULL))
    assert "R tries again" in terminal.wait_for("take a smaller model")
    terminal.child.send("q")
    assert terminal.end() == 3
    assert_left_clean(terminal)


def test_a_fault_of_our_own_leaves_a_clean_terminal_and_names_the_log(start: Start) -> None:
    script = FAKE_LIVE.format(load=FULL).replace("code =", "app.apply = None\ncode =")
    terminal = start("-c", script)
    assert terminal.end() == 1
    assert_left_clean(terminal)
    assert "dynatui.log" in terminal.written


def test_an_engine_that_hangs_is_left_behind(start: Start) -> None:
    terminal = start("-c", FAKE_LIVE.format(load=HUNG))
    terminal.wait_for("loading a fake")
    began = time.monotonic()
    terminal.child.send("q")
    assert terminal.end() == 0
    assert time.monotonic() - began < 6
    assert_left_clean(terminal)


def test_native_noise_stays_out_of_the_picture(start: Start) -> None:
    terminal = start("-c", FAKE_LIVE.format(load=NATIVE))
    terminal.wait_for("R tries again")
    terminal.child.send("q")
    assert terminal.end() == 3
    assert "NOISE" not in terminal.written
    assert "AFTER" in terminal.written[terminal.written.rindex(LEAVE) :], "afterwards the outputs are back"


def test_the_keyboard_works_when_the_prompt_came_through_standard_input(start: Start) -> None:
    script = FAKE_LIVE.format(load=FULL).replace("'", '"')
    terminal = start("-c", f"import os, sys; r, w = os.pipe(); os.close(w); os.dup2(r, 0)\n{script}")
    terminal.wait_for("take a smaller model")
    terminal.child.send("q")
    assert terminal.end() == 3
    assert_left_clean(terminal)


def rounds_in(path: Path) -> list[Round]:
    """The watched method's rounds that a recording holds so far."""
    events = read(path) if path.exists() and path.stat().st_size else []
    return [event for event in events if isinstance(event, Round) and event.method == "dynatree"]


def wait_for_rounds(terminal: Terminal, path: Path, count: int) -> None:
    """Lets the program run until so many rounds are recorded."""
    for _ in range(600):
        terminal.read(0.1)
        if len(rounds_in(path)) >= count:
            return
    pytest.fail("the rounds never came; the screen is\n" + "\n".join(terminal.screen.display))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
def test_the_embedded_pair_decodes_live_and_obeys_the_keys(start: Start, tmp_path: Path, size: tuple[int, int]) -> None:
    prompt, recorded = tmp_path / "prompt.txt", tmp_path / "live.jsonl"
    prompt.write_text("The captain went down to the harbour, and there he saw\n")
    terminal = start("-m", "dynatui", "--prompt-file", str(prompt), "--record", str(recorded), size=size)
    wait_for_rounds(terminal, recorded, 5)
    terminal.child.send("[")
    wait_for_rounds(terminal, recorded, len(rounds_in(recorded)) + 5)
    terminal.child.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal)
    events = read(recorded)
    turned = [event for event in events if isinstance(event, Knob) and event.source == "user"]
    assert [(knob.name, knob.new < knob.old) for knob in turned] == [("tau_h", True)]
    after = next(event for event in rounds_in(recorded) if event.round >= turned[0].round)
    assert after.knobs is not None
    assert after.knobs.tau_h == pytest.approx(turned[0].new)
