"""Pieces of input become messages of Textual, and none can break Textual's parser."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.message import Message

from dynatui.terminal.driver import SEQUENCE_TIMEOUT_S, Interpreter, Keyboard, Pasted


def keys(messages: Iterable[Message]) -> list[str]:
    """Names of the keys among the messages."""
    return [message.key for message in messages if isinstance(message, events.Key)]


@pytest.mark.parametrize(
    ("piece", "meant"),
    [
        ("aB", ["a", "B"]),
        ("\x1b", ["escape"]),
        ("\x1bx", ["alt+x"]),
        ("\x1b[", ["left_square_bracket"]),
        ("\x1b[1;2D", ["shift+left"]),
        ("\x1b[97;5u", ["ctrl+a"]),
        ("\x1bOP", ["f1"]),
    ],
    ids=repr,
)
def test_keys_are_keys_at_once(piece: str, meant: list[str]) -> None:
    assert keys(Interpreter().read(piece)) == meant


@pytest.mark.parametrize(
    "piece",
    ["\x1b[97;1:3u", "\x1b[99999999999;5u", "\x1b[97;5;1114112u", "\x1b[?1;2c", "\x1b[0 q", "\x1b[;;;;u", "\x1bO5P"],
    ids=repr,
)
def test_what_textual_cannot_read_means_nothing_and_is_over(piece: str) -> None:
    interpreter = Interpreter()
    assert keys(interpreter.read(piece)) == []
    assert keys(interpreter.read("x")) == ["x"]
    assert keys(interpreter.read("\x1b[A")) == ["up"]


def test_a_paste_is_one_message() -> None:
    (message,) = Interpreter().read(Pasted("a\nq"))
    assert isinstance(message, events.Paste)
    assert message.text == "a\nq"


def test_a_pointer_in_a_window_of_no_size_is_nowhere() -> None:
    interpreter = Interpreter()
    list(interpreter.read("\x1b[48;1;0;1;0t"))
    assert list(interpreter.read("\x1b[<0;5;5M")) == []


_NUMBERS = st.integers(0, 2**40).map(lambda number: b"%d" % number)
_PARTS = st.sampled_from((b"\x1b[", b";", b":", b"<", b"?", b"$", *(bytes([end]) for end in b"uytRMmABZ~cq")))
streams = st.lists(_NUMBERS | _PARTS, max_size=12).map(b"".join)


@given(streams | st.binary(max_size=60))
def test_no_bytes_break_it(sent: bytes) -> None:
    keyboard, interpreter = Keyboard(), Interpreter()
    for received, now in ((sent, 0.0), (b"", SEQUENCE_TIMEOUT_S), (b"x", SEQUENCE_TIMEOUT_S)):
        found = [message for piece in keyboard.take(received, now) for message in interpreter.read(piece)]
    assert keys(found)[-1] == "x"
