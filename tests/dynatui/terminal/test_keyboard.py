"""Bytes from a terminal become text, sequences and pastes, however they are split, and then messages of Textual."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.message import Message

from dynatui.terminal.driver import (
    ESCAPE_DELAY_S,
    LONGEST_PASTE,
    SEQUENCE_TIMEOUT_S,
    Answered,
    Interpreter,
    Keyboard,
    Pasted,
    Piece,
)
from dynatui.terminal.output import ANSWER


def pieces(*chunks: bytes) -> list[Piece]:
    """Pieces from chunks that follow each other without delay and then a pause."""
    keyboard = Keyboard()
    taken = [piece for chunk in chunks for piece in keyboard.take(chunk, 0.0)]
    return [*taken, *keyboard.take(b"", SEQUENCE_TIMEOUT_S)]


def test_an_answer_of_the_terminal_is_no_part_of_a_paste_and_does_not_postpone_its_end() -> None:
    answer, keyboard = ANSWER.encode(), Keyboard()
    assert list(keyboard.take(b"\x1b[200~qq", 0.0)) == []
    assert list(keyboard.take(answer, SEQUENCE_TIMEOUT_S / 2)) == [ANSWER]
    assert list(keyboard.take(answer, SEQUENCE_TIMEOUT_S)) == [ANSWER, Pasted("qq")]
    assert list(keyboard.take(b"q", SEQUENCE_TIMEOUT_S)) == ["q"]


def joined(found: list[Piece]) -> list[Piece]:
    """The same pieces, with neighbouring texts joined."""
    whole: list[Piece] = []
    for piece in found:
        before = whole[-1] if whole else None
        if isinstance(piece, str) and isinstance(before, str) and "\x1b" not in piece + before:
            whole[-1] = before + piece
        else:
            whole.append(piece)
    return whole


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (b"abc", ["abc"]),
        ("ä世🧑".encode(), ["ä世🧑"]),
        (b"a\xffb", ["a\ufffdb"]),
        (b"\xe4\xb8\x1b[A", ["\ufffd", "\x1b[A"]),
        (b"\x1b[A\x1b[1;5Cx", ["\x1b[A", "\x1b[1;5C", "x"]),
        (b"\x1b[97;1:3ux", ["\x1b[97;1:3u", "x"]),
        (b"\x1bOPx", ["\x1bOP", "x"]),
        (b"\x1b[[Ax", ["\x1b[[A", "x"]),
        (b"\x1b[23$x", ["\x1b[23$", "x"]),
        (b"\x1b[?2026;1$yx", ["\x1b[?2026;1$y", "x"]),
        (b"\x1b[<0;10;20Mx", ["\x1b[<0;10;20M", "x"]),
        (b"\x1b", ["\x1b"]),
        (b"\x1b\x1b", ["\x1b", "\x1b"]),
        (b"\x1bbx", ["\x1bb", "x"]),
        ("\x1béx".encode(), ["\x1bé", "x"]),
        (b"\x1b\xffx", ["\x1b", "\ufffdx"]),
        (b"\x1b[", ["\x1b["]),
    ],
    ids=repr,
)
def test_text_and_sequences_are_given_out_one_by_one(sent: bytes, meant: list[Piece]) -> None:
    assert pieces(sent) == meant


@pytest.mark.parametrize(
    "reply",
    [
        b"\x1b[M \xc8!",
        b"\x1b[M q!",
        b"\x1b]11;rgb:1e1e/2e2e/3e3e\x07",
        b"\x1b]11;rgb:1e1e/2e2e/3e3e\x1b\\",
        b"\x1bP>|quux 1.0\x1b\\",
        b"\x1bP1$r0 q\x1b\\",
        b"\x1b_Gi=1;OK\x1b\\",
        b"\x1b[?64;1;2;4;6;9;15;16;17;18;21;22;28c",
        b"\x1b[12\x05",
        b"\x1b]11;rgb\x05",
        b"\x1b[[\x05",
        b"\x1b[M \x05",
        b"\x1bO5\x05",
    ],
    ids=repr,
)
def test_what_no_key_sends_is_dropped_and_what_follows_it_is_not(reply: bytes) -> None:
    assert "".join(str(piece) for piece in pieces(b"a" + reply + b"b")).replace("\x05", "") == "ab"


@pytest.mark.parametrize(
    "sent", [b"\x1b[12;", b"\x1b]11;rgb", b"\x1b[M q", b"\x1bO5", b"\x1b[[", b"\x1b\xe2\x80"], ids=repr
)
def test_what_never_ends_is_given_up_after_a_silence(sent: bytes) -> None:
    keyboard = Keyboard()
    assert list(keyboard.take(sent, 0.0)) == []
    assert list(keyboard.take(b"", SEQUENCE_TIMEOUT_S)) == []
    assert list(keyboard.take(b"q", SEQUENCE_TIMEOUT_S)) == ["q"]


def test_the_escape_key_is_one_after_its_delay_and_no_sooner() -> None:
    keyboard = Keyboard()
    assert list(keyboard.take(b"\x1b", 0.0)) == []
    assert list(keyboard.take(b"", ESCAPE_DELAY_S / 2)) == []
    assert list(keyboard.take(b"", ESCAPE_DELAY_S)) == ["\x1b"]
    assert list(keyboard.take(b"", 9.0)) == []


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"a\x1b[31mxq", "a␛[31mxq"),
        (b"q\r\nq\rq\n", "q\nq\nq\n"),
        (b"\x03\x1a\x00\x9b\xff", "␃␚␀\ufffd\ufffd"),
        (b"\x1b[200~q", "␛[200~q"),
        (b"\x1b[201", "␛[201"),
    ],
    ids=repr,
)
def test_a_paste_is_a_text_whatever_it_holds(sent: bytes, text: str) -> None:
    assert pieces(b"x\x1b[200~" + sent + b"\x1b[201~y") == ["x", Pasted(text), "y"]


def test_an_empty_paste_is_none() -> None:
    assert pieces(b"\x1b[200~\x1b[201~y") == ["y"]


def test_a_paste_that_never_ends_swallows_no_key_after_a_silence() -> None:
    keyboard = Keyboard()
    assert list(keyboard.take(b"\x1b[200~one", 0.0)) == []
    assert list(keyboard.take(b" two", 0.5)) == []
    assert list(keyboard.take(b"", 1.2)) == []
    assert list(keyboard.take(b"", 0.5 + SEQUENCE_TIMEOUT_S)) == [Pasted("one two")]
    assert list(keyboard.take(b"q", 2.0)) == ["q"]


def test_a_paste_beyond_all_bounds_fills_no_memory_and_ends() -> None:
    keyboard, sent = Keyboard(), b"x" * 2**16
    assert list(keyboard.take(b"\x1b[200~", 0.0)) == []
    for _ in range(2 * LONGEST_PASTE // len(sent)):
        assert list(keyboard.take(sent, 0.0)) == []
    (pasted, *rest) = keyboard.take(b"\x1b[201~q", 0.0)
    assert isinstance(pasted, Pasted)
    assert LONGEST_PASTE <= len(pasted.text) < LONGEST_PASTE + 10
    assert rest == ["q"]


def test_every_sequence_that_textual_knows_is_whole_and_alone() -> None:
    known = [name for name in ANSI_SEQUENCES_KEYS if name.startswith("\x1b") and name.strip("\x1b")]
    assert known
    assert [name for name in known if pieces(name.encode() + b"x") != [name, "x"]] == []


_PARTS = (
    *(b"a", b"\xff", b"\xc3", b"\xa4", b"\x1b", b"[", b"O", b"M", b"]", b"P", b"\x07", b"\\", b"1", b";", b"u", b"~"),
    *(b"\x1b[200~", b"\x1b[201~", b"\x1b[A", b"\x1b[M !!", b" ", b"\x05", "é".encode()),
)
streams = st.lists(st.sampled_from(_PARTS), max_size=12).map(b"".join)


@given(streams, st.integers(0, 40), st.integers(0, 40))
def test_where_chunks_end_makes_no_difference(sent: bytes, first: int, second: int) -> None:
    first, second = sorted((first, second))
    assert joined(pieces(sent[:first], sent[first:second], sent[second:])) == joined(pieces(sent))


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


_KEYS = (b"q", b"[0n", "ä".encode(), b"\x1b[A", b"\x1b[1;2R", b"\x1b[<0;5;5M", b"\x1bx", b"\x1bOP")
_TYPED = (*_KEYS, b"\x1b[200~a\x1b[0nb\x1b[201~")


@given(st.lists(st.sampled_from(_TYPED), max_size=6), st.lists(st.integers(0, 6), max_size=4))
def test_an_answer_of_the_terminal_eats_no_key_and_no_key_is_one(typed: list[bytes], places: list[int]) -> None:
    mixed = [*typed]
    for place in places:
        mixed.insert(place, ANSWER.encode())
    alone, among = (
        [message for piece in pieces(*sent) for message in Interpreter().read(piece)] for sent in (typed, mixed)
    )
    assert sum(isinstance(message, Answered) for message in alone) == 0
    assert sum(isinstance(message, Answered) for message in among) == len(places)
    assert keys(among) == keys(alone)


def test_an_answer_right_after_the_escape_key_leaves_it_a_key() -> None:
    escape, answer = pieces(b"\x1b" + ANSWER.encode())
    assert (keys(Interpreter().read(str(escape))), answer) == (["escape"], ANSWER)


def test_a_paste_is_one_message() -> None:
    (message,) = Interpreter().read(Pasted("a\nq"))
    assert isinstance(message, events.Paste)
    assert message.text == "a\nq"


def test_a_pointer_in_a_window_of_no_size_is_nowhere() -> None:
    interpreter = Interpreter()
    list(interpreter.read("\x1b[48;1;0;1;0t"))
    assert list(interpreter.read("\x1b[<0;5;5M")) == []


_NUMBERS = st.integers(0, 2**40).map(lambda number: b"%d" % number)
_ENDS = st.sampled_from((b"\x1b[", b";", b":", b"<", b"?", b"$", *(bytes([end]) for end in b"uytRMmABZ~cq")))
input_streams = st.lists(_NUMBERS | _ENDS, max_size=12).map(b"".join)


@given(streams | input_streams | st.binary(max_size=60))
def test_no_bytes_break_it_and_after_a_silence_a_key_counts_again(sent: bytes) -> None:
    keyboard, interpreter = Keyboard(), Interpreter()
    for received, now in ((sent, 0.0), (b"", SEQUENCE_TIMEOUT_S), (b"x", SEQUENCE_TIMEOUT_S)):
        found = [message for piece in keyboard.take(received, now) for message in interpreter.read(piece)]
    assert keys(found)[-1] == "x"
