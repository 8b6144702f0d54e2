"""Random bytes on standard input of the live screen: the program neither ends nor hangs.

`DYNATUI_RANDOM_STRINGS=10000` sends 10000 strings instead of 80.
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import Start, Terminal, assert_left_clean

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")]

STRINGS = int(os.environ.get("DYNATUI_RANDOM_STRINGS", "80"))
LONGEST = 12
DOORS = b"q\x03\x1a\x10"
BYTES = bytes(byte for byte in range(256) if byte not in DOORS)
SEQUENCE = b"\x1b[]OPM<>?;:0123456789~uABCDHFmMRcIt"
CODED = (b"113", b"99;", b"122;", b"112;", b"3u", b"3;", b"16;", b"16u", b"26;", b"26u")
ESCAPE = "\x1b[27u"


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
        terminal.send(ESCAPE * 3)
        terminal.read(0.3)
        terminal.send("?")
        if "? or esc goes back" in terminal.read(0.4):
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
