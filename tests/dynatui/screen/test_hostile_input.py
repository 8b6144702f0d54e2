"""Arbitrary bytes on the screen's standard input in a pseudo-terminal: the program continues; pastes are no keys."""

import sys

import pytest

from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import Start, Terminal, assert_left_clean

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")]

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
    terminal.send(sent)
    terminal.read(0.2)
    terminal.send("?")
    terminal.wait_for(HELP)
    terminal.send("\x1b[27u")
    assert terminal.wait_until(lambda: HELP not in terminal.shown)


def assert_quits(terminal: Terminal) -> None:
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal)


def test_malformed_input_ends_nothing(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    terminal.wait_for("L-bar")
    for sent in MALFORMED:
        assert_goes_on(terminal, sent)
    assert_quits(terminal)


def test_a_paste_is_no_keys_whatever_it_holds_and_wherever_it_is_cut(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    terminal.wait_for("L-bar")
    for sent in PASTES:
        assert_goes_on(terminal, sent)
    terminal.send(b"\x1b[200~a\x1b[31")
    terminal.read(0.3)
    assert_goes_on(terminal, b"mxq\x1b[201~")
    assert_quits(terminal)


def test_a_paste_that_never_ends_leaves_the_keys_working(start: Start, recording: str) -> None:
    terminal = start("-m", "dynatui", "replay", recording)
    terminal.wait_for("L-bar")
    terminal.send(b"\x1b[200~qqq")
    terminal.read(1.5)
    assert_quits(terminal)


def test_a_paste_into_the_editor_is_its_text_with_escapes_made_visible(start: Start) -> None:
    terminal = start("-c", script())
    terminal.wait_for(" w9")
    terminal.send("E")
    terminal.wait_for("Edit the prompt")
    terminal.send(b"\x1b[200~ pasted\x1b[31mq\rline\x1b[201~")
    terminal.wait_for("one pasted␛[31mq")
    terminal.send("\x12")
    terminal.wait_for(" w9")
    assert_quits(terminal)


@pytest.mark.parametrize("sent", [b"\xff", PASTES[0], UNKNOWN], ids=repr)
def test_two_recordings_side_by_side_survive_it_too(start: Start, recording: str, sent: bytes) -> None:
    terminal = start("-m", "dynatui", "replay", recording, recording)
    terminal.wait_for("space")
    terminal.send(sent)
    terminal.read(0.4)
    assert terminal.child.isalive()
    terminal.send("?")
    terminal.wait_for("Runs are")
    terminal.send("\x1b[27u")
    assert_quits(terminal)
