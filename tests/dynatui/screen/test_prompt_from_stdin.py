"""A prompt from standard input in a terminal: the prompt is shown, and keys are read from the terminal."""

import sys

import pytest

from tests.dynatui.pty_terminal import ENTER, Start, Terminal, assert_left_clean

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")]

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
        "(sleep 0.3; echo It was late) | dynatui --prompt-file -",
        "echo It was late > file; dynatui --prompt-file - < file",
        "mkfifo pipe; (sleep 0.3; echo It was late > pipe) & dynatui --prompt-file - < pipe",
        "echo It was late | dynatui --prompt-file /dev/stdin",
    ],
)
def test_a_prompt_through_standard_input_is_shown_and_keys_come_from_the_terminal(start_new: Start, line: str) -> None:
    terminal = in_bash(start_new, line)
    assert "It was late" in terminal.wait_for("Once upon")
    terminal.send("?")
    terminal.wait_for("arrow keys")
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dynatui --prompt-file - <&-", "standard input is closed"),
        ("dynatui --prompt-file - < /dev/null", "standard input is empty"),
        ("printf '\\377' | dynatui --prompt-file -", "is not UTF-8"),
    ],
)
def test_standard_input_without_a_prompt_is_refused_in_one_line_before_the_screen(
    start_new: Start, line: str, said: str
) -> None:
    terminal = in_bash(start_new, line)
    assert terminal.end() == 2
    assert said in terminal.shown
    assert terminal.written.count(b"\n") == 1
    assert ENTER not in terminal.written


def test_a_prompt_that_is_to_be_typed_says_how_it_ends(start_new: Start) -> None:
    terminal = in_bash(start_new, "dynatui --prompt-file -")
    terminal.wait_for("ctrl+d")
    terminal.send("It was late\n\x04")
    assert "It was late" in terminal.wait_for("Once upon")
    terminal.send("q")
    assert terminal.end() == 0
