"""Malformed input and pastes on standard input in a pseudo-terminal end nothing, and pastes are no keys."""

from tests.dynatui.endless_engine import script
from tests.dynatui.pty_terminal import Start, Terminal, leave
from tests.dynatui.screen.random_input import ESCAPE

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
    terminal.play(b"\x1b[200~qqq", 2.0)
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
