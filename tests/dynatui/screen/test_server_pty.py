"""`dynatui attach` in a pseudo-terminal: the screen, the end, and the restored terminal."""

import re
import signal
from collections.abc import Iterator

import pytest

from tests.dynatui.attach.page_server import PageServer, page, serving, text
from tests.dynatui.pty_terminal import Start, assert_left_clean, leave
from tests.dynatui.terminal_grammar import forbidden_output

HOSTILE = "\x1b]52;c;UFdORUQ=\x07\x9b2J\u202e"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with serving(text(page("vllm-1"))) as found:
        yield found


def test_a_server_is_shown_and_a_key_leaves_a_clean_terminal(start: Start, server: PageServer) -> None:
    terminal = start("-m", "dynatui", "attach", server.url, "--interval", "0.2")
    terminal.wait_for("connected")
    assert "vLLM" in terminal.shown
    server.answer = text(page("vllm-2"))
    terminal.wait_for("2.70")
    server.answer = text("", 503)
    terminal.wait_for("answers 503 Service Unavailable")
    assert "NO METRICS" in terminal.shown
    server.answer = text(page("vllm-2"))
    terminal.wait_for("connected")
    leave(terminal)
    assert re.search(r"vLLM at http://127.0.0.1:\d+/metrics, watched for \d+ s: L-bar 2.70", terminal.afterwards)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_clean_terminal(start: Start, server: PageServer, number: signal.Signals) -> None:
    terminal = start("-m", "dynatui", "attach", server.url)
    terminal.wait_for("connected")
    terminal.child.kill(number)
    assert terminal.end() == 128 + number
    assert_left_clean(terminal)


def test_it_ends_at_once_though_the_server_does_not_answer(start: Start, server: PageServer) -> None:
    server.answer = lambda handler: handler.connection.recv(1) and None
    terminal = start("-m", "dynatui", "attach", server.url)
    terminal.play("connecting", b"q")
    assert terminal.end(within_s=10.0) == 0
    assert_left_clean(terminal)


def test_a_server_that_is_not_there_is_said_to_be_asked_again(start: Start) -> None:
    with serving() as gone:
        port = gone.port
    terminal = start("-m", "dynatui", "attach", f"127.0.0.1:{port}", "--interval", "0.2", size=(120, 40))
    terminal.wait_for("Connection refused; trying again")
    leave(terminal, key="\x03")


def test_hostile_names_are_shown_and_never_obeyed(start: Start, server: PageServer) -> None:
    server.answer = text(page("vllm-1").replace("meta-llama", f"NAME{HOSTILE}"))
    terminal = start("-m", "dynatui", "attach", server.url, size=(200, 60))
    terminal.wait_for("NAME")
    leave(terminal)
    assert not forbidden_output(terminal.written, (200, 60))
    assert b"52;c;" not in terminal.written.replace(b"\xe2\x90\x9b]52;c;", b"")


def test_a_full_disk_ends_it_with_a_clean_terminal_and_one_line(start: Start, server: PageServer) -> None:
    terminal = start("-m", "dynatui", "attach", server.url, "--record", "/dev/full")
    assert terminal.end() == 2
    assert_left_clean(terminal)
    assert "cannot write /dev/full: No space left on device" in terminal.afterwards
