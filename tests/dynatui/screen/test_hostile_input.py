"""Arbitrary bytes on the screen's standard input in a pseudo-terminal: the program neither ends nor hangs, and pastes
are no keys. `DYNATUI_RANDOM_STRINGS=10000` sends 10000 random strings instead of 80.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import Start, Terminal, assert_left_clean, leave

STRINGS = int(os.environ.get("DYNATUI_RANDOM_STRINGS", "80"))
LONGEST = 12
DOORS = b"q\x03\x1a\x10"
BYTES = bytes(byte for byte in range(256) if byte not in DOORS)
SEQUENCE = b"\x1b[]OPM<>?;:0123456789~uABCDHFmMRcIt"
CODED = (b"113", b"99;", b"122;", b"112;", b"3u", b"3;", b"16;", b"16u", b"26;", b"26u")
ESCAPE = "\x1b[27u"
HELP = "arrow keys, j k g G scroll"
UNKNOWN = b"\x11\x1b[113;5u"
MALFORMED = (
    UNKNOWN,
    b"\xff",
    b"\xc3",
    b"\x1b[M \xc8!",
    b"\x1b[97;1:3u",
    b"\x1b[99999999999;5u",
    b"\x1b[97;5;1114112u",
    b"\x1b[97;5;55296u",
    b"\x1b[48;1;0;1;0t\x1b[<0;5;5M",
    b"\x1b]11;rgb:0000/0000/0000\x07",
    b"\x1bP1$r0 q\x1b\\",
    b"\x1b[?64;1;2;4;6;9;15;16;17;18;21;22;28q",
)
PASTES = (
    b"\x1b[200~a\x1b[31mxq\x1b[201~",
    b"\x1b[200~q\x03q\x1b[201~",
    b"\x1b[200~\x1b[200~q\x1b[201~",
    b"\x1b[200~\xffq\x1b[201~",
)


def assert_goes_on(terminal: Terminal, sent: bytes) -> None:
    terminal.play(sent, b"?", HELP)
    terminal.send(ESCAPE)
    assert terminal.wait_until(lambda: HELP not in terminal.shown)


def test_malformed_input_and_pastes_end_nothing(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    terminal.wait_for("tokens a round")
    for sent in (*MALFORMED, *PASTES):
        assert_goes_on(terminal, sent)
    terminal.play(b"\x1b[200~a\x1b[31", 0.3)
    assert_goes_on(terminal, b"mxq\x1b[201~")
    terminal.play(b"\x1b[200~qqq", 1.5)
    leave(terminal)


def test_a_paste_into_the_editor_is_its_text_with_escapes_made_visible(start: Start) -> None:
    terminal = start("-c", script())
    terminal.play(
        " w9", b"E", "Edit the prompt", b"\x1b[200~ pasted\x1b[31mq\rline\x1b[201~", "one pasted␛[31mq", b"\x12", " w9"
    )
    leave(terminal)


def test_two_recordings_side_by_side_survive_it_too(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording, recording)
    terminal.play("space", b"\xff", PASTES[0], UNKNOWN, b"?", "Runs are")
    terminal.send(ESCAPE)
    leave(terminal)


def strings(seed: int, count: int) -> Iterator[bytes]:
    chosen = random.Random(seed)
    while count:
        alphabet = chosen.choice((BYTES, BYTES[:125], SEQUENCE))
        string = bytes(chosen.choices(alphabet, k=chosen.randint(1, LONGEST)))
        if alphabet is SEQUENCE:
            string = b"\x1b" + string
        if not any(code in string for code in CODED):
            count -= 1
            yield string


def assert_answers(terminal: Terminal) -> None:
    for _ in range(60):
        terminal.play(f"{ESCAPE * 3}".encode(), 0.1, b"?", 0.2)
        if "? or esc goes back" in terminal.shown:
            terminal.send(ESCAPE)
            return
        if not terminal.child.isalive():
            break
    pytest.fail(f"it does not answer any more; the screen is\n{terminal.shown}")


def test_random_bytes_neither_end_nor_stop_it(start: Start, tmp_path: Path) -> None:
    terminal = start("-c", script('record = Path("run.jsonl")'), size=(120, 40))
    terminal.wait_for(" w1")
    for number, string in enumerate(strings(11, STRINGS), 1):
        terminal.send(string)
        terminal.read(0.01)
        if number % 80 == 40:
            assert_answers(terminal)
    assert_answers(terminal)
    terminal.send("q")
    assert terminal.end(within_s=30) == 0
    assert_left_clean(terminal)
    assert not any("Traceback" in log.read_text() for log in tmp_path.rglob("*.log"))
