"""A robust version of Textual's terminal driver: no input can end the input thread, and the screen size is bounded."""

import os
import re
import select
import signal
import time
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.keys import Keys
from textual.message import Message

from dynatui.clean import clean
from dynatui.terminal.output import ANSWER, Output, wait_for_foreground
from dynatui.terminal.shutdown import Shutdown

ESCAPE_DELAY_S = 0.1
"""Seconds without input after which an escape byte is taken as the escape key."""
SEQUENCE_TIMEOUT_S = 1.0
"""Seconds without input after which an incomplete paste or sequence is taken as ended."""
LONGEST_PASTE = 2**22
"""Largest number of bytes of a paste; the rest is dropped."""
_LONGEST_SEQUENCE = 32
"""Largest number of bytes of a key's or pointer's sequence; Textual would mistake longer sequences for keys."""
_PASTE_END = b"\x1b[201~"
_ANSWER = ANSWER.encode()
_PIECE = re.compile(
    rb"""
      (?P<text> [^\x1b]+ )
    | (?P<paste> \x1b\[200~ )
    | (?P<sequence>
          \x1b\[\[ [A-E]                                      # function keys of the Linux console
        | \x1b\[ (?: 3 | 7 | 8 | 23 | 24 ) \$                 # shifted keys of rxvt
        | \x1b\[ (?! [\[M] ) [0-?]* [ -/]* [@-~]
        | \x1bO [0-9;]* [ -/:<-~]
        | \x1b [^\x1bO\[PX^_\]\x80-\xff]                      # a key with alt, here and in the next line
        | \x1b (?: [\xc2-\xdf][\x80-\xbf] | [\xe0-\xef][\x80-\xbf]{2} | [\xf0-\xf4][\x80-\xbf]{3} )
        | \x1b (?= \x1b | [\x80-\xc1\xf5-\xff] | [\xc2-\xf4][^\x80-\xbf] )
      )
    | (?P<dropped>
          \x1b\[M [\x20-\xff]{3}                              # a pointer event in X10 encoding: any three bytes
        | \x1b[PX^_\]] [\x08-\x0d\x20-\xff]* (?: \x07 | \x1b\\ )  # a reply that is a string
        # Sequences that an unexpected byte has cut off:
        | \x1b[PX^_\]] [\x08-\x0d\x20-\xff]* (?= [\x00-\x06\x0e-\x1a\x1c-\x1f] | \x1b[^\\] )
        | \x1b\[ [0-?]* [ -/]* (?= [^ -~] )
        | \x1b\[M [\x20-\xff]{0,2} (?= [\x00-\x1f] )
        | \x1b\[\[ (?= [^A-E] )
        | \x1bO [0-9;]* (?= [^ -~] )
      )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Pasted:
    """Pasted text, with Unix line ends and without control characters."""

    text: str


Piece: TypeAlias = str | Pasted
"""A paste, or a string that is either one escape sequence or text without escape characters."""


class Keyboard:
    """Splits input into pieces; keeps the bytes of an incomplete piece until the rest arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._pasting = False
        self._searched = 0
        """Index of the first byte of `_buffer` at which the end of a paste may begin."""
        self._newest_s = 0.0
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    def take(self, received: bytes, now: float) -> Iterator[Piece]:
        """The pieces that `received` completes or, if it is empty, that a timeout at `now` ends."""
        if self._pasting and not received.replace(_ANSWER, b""):
            # Each frame may ask for an answer, so answers must not postpone the end of a paste that was cut off.
            yield from [ANSWER] * received.count(_ANSWER)
            received = b""
        if received:
            self._buffer += received
            self._newest_s = now
            while cut := self._cut():
                kind, sequence = cut
                del self._buffer[: len(sequence)]
                yield from self._piece(kind, sequence)
        else:
            yield from self._given_up(now - self._newest_s)

    def _cut(self) -> tuple[str | None, bytes] | None:
        """Kind and bytes of the next piece; None while it is incomplete."""
        if not self._pasting:
            match = _PIECE.match(self._buffer)
            return (match.lastgroup, match[0]) if match else None
        end = self._buffer.find(_PASTE_END, self._searched)
        if end >= 0:
            return "pasted", bytes(self._buffer[: end + len(_PASTE_END)])
        del self._buffer[LONGEST_PASTE : -len(_PASTE_END)]
        self._searched = max(0, len(self._buffer) - len(_PASTE_END))
        return None

    def _piece(self, kind: str | None, sequence: bytes) -> Iterator[Piece]:
        # The bytes of a character may be split between two reads. Only a piece of text can complete the character: if
        # another kind of piece follows, the bytes left from the first read are invalid.
        if kind != "text" and (text := self._decode(b"", final=True)):
            yield text
        match kind:
            case "text":
                if text := self._decode(sequence, final=bool(self._buffer)):
                    yield text
            case "sequence" if len(sequence) <= _LONGEST_SEQUENCE:
                yield sequence.decode("utf-8", "replace")
            case "paste":
                self._pasting = True
            case "pasted":
                self._pasting, self._searched = False, 0
                if text := sequence.removesuffix(_PASTE_END).decode("utf-8", "replace"):
                    yield Pasted(clean(text.replace("\r\n", "\n").replace("\r", "\n")))

    def _given_up(self, silent_s: float) -> Iterator[Piece]:
        is_a_key = not self._pasting and len(self._buffer) <= len("\x1b[")
        if silent_s < (ESCAPE_DELAY_S if is_a_key else SEQUENCE_TIMEOUT_S):
            return
        kind = "pasted" if self._pasting else "sequence" if is_a_key and self._buffer else "dropped"
        sequence = bytes(self._buffer)
        self._buffer.clear()
        yield from self._piece(kind, sequence)


LARGEST = (1000, 400)
"""Largest number of columns and rows that are drawn; all other cells stay blank."""
_POLL_S = 0.1
_AT_ONCE = 2**12
_LAST_ANSWER_S = 1.0
"""Longest wait, when the app ends, for an answer of the terminal, which the shell would otherwise read as input."""
_NAMED = {",": "comma"}
"""Characters with another meaning in Textual's bindings -> names of their keys."""


class TerminalApp(App[None], inherit_bindings=False):
    """An app that a quit key ends at once, and whose frames wait for the terminal's answers."""

    shutdown: Shutdown
    leave_keys: frozenset[str]
    output: Output


class Answered(Message):
    """The terminal has answered the oldest open question (`Answers`), so it has read all output before the question."""


class Interpreter(XTermParser):
    """Parses complete pieces. If Textual waits for further input, the piece is a lone escape, alt + key, or unknown."""

    def read(self, piece: Piece) -> Iterator[Message]:
        if isinstance(piece, Pasted):
            yield events.Paste(piece.text)
            return
        if piece == ANSWER:
            yield Answered()
            return
        yield from self.feed(piece)
        if self._timeout_time is not None:
            self._timeout_time = 0.0
            spelled_out = list(self.tick())
            if len(piece) <= len("\x1b["):
                yield from spelled_out  # the piece is the escape key, or a key with alt

    def parse_mouse_code(self, code: str) -> Message | None:
        """The event of a mouse sequence; None if the terminal has reported a size of 0, by which Textual divides."""
        try:
            return super().parse_mouse_code(code)
        except ZeroDivisionError:
            return None

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:  # noqa: FBT001, FBT002 - Textual's
        try:
            return list(super()._sequence_to_key_events(sequence, alt))
        except (ValueError, OverflowError):  # a number in the sequence is malformed, or is no character code
            return [events.Key(Keys.Ignore, sequence)]


class TerminalDriver(LinuxDriver):
    def __init__(self, app: TerminalApp, *, size: tuple[int, int] | None = None, **how: bool) -> None:
        super().__init__(app, size=size, **how)
        self._of = app
        self._size = size or self._get_terminal_size()
        self._continued = False
        """Whether a SIGCONT has arrived since the last `start_application_mode`."""

    def process_message(self, message: Message) -> None:
        """Quit keys end the app at once. A reported size is ignored if the terminal has not announced size reports."""
        if isinstance(message, events.Key) and _leaves(cap_of(message), self._of):
            self._of.shutdown.request(0)
        elif not isinstance(message, events.Resize):
            if isinstance(message, Answered):
                self._of.output.answered()
            super().process_message(message)
        elif self._in_band_window_resize and message.size:
            size = Size(*_bounded(message.size))
            super().process_message(events.Resize(size, size, pixel_size=message.pixel_size))

    def start_application_mode(self) -> None:
        """Repeats the start until it succeeds: a signal may interrupt Textual's check that it is in the foreground."""
        thread_before = self._key_thread
        while self._key_thread is thread_before:
            wait_for_foreground(self.fileno)
            self._continued = False
            super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual does not annotate it
        self._of.output.forget_answers()
        self.write(self._of.output.question())

    def stop_application_mode(self) -> None:
        """Has no effect while the app is suspended, since the app does not use the terminal then."""
        if not self._must_signal_resume:
            super().stop_application_mode()

    def disable_input(self) -> None:
        """Has no effect while the app is suspended, since the app does not use the terminal then."""
        if not self._must_signal_resume:
            end, output = time.monotonic() + _LAST_ANSWER_S, self._of.output
            while output.busy and not output.lost and time.monotonic() < end:
                time.sleep(_LAST_ANSWER_S / 100)
            super().disable_input()

    def _sigtstp_application(self, *_signalled: object) -> None:
        """Suspends the app between two callbacks of the event loop; after the app's end, only stops the process."""
        if self._loop.is_closed():
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_signalled: object) -> None:
        """Resumes the app between callbacks of the event loop, so that no signal interrupts the start of threads."""
        self._continued = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        """Starts to use the terminal again; after a SIGSTOP, which Textual does not notice, first ends its threads."""
        taken_since = not self._continued
        if taken_since or self._of.shutdown.begun:
            return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        super()._sigcont_application()

    def _get_terminal_size(self) -> tuple[int, int]:
        return _bounded(super()._get_terminal_size())

    def run_input_thread(self) -> None:
        keyboard, interpreter = Keyboard(), Interpreter()
        while not self.exit_event.is_set():
            received = b""
            if select.select([self.fileno], [], [], _POLL_S)[0]:
                try:
                    received = os.read(self.fileno, _AT_ONCE)
                except OSError:
                    return  # the terminal is closed, which the app detects by itself
                if not received:
                    return
            for piece in keyboard.take(received, time.monotonic()):
                for message in interpreter.read(piece):
                    self.process_message(message)


def cap_of(event: events.Key) -> str:
    """Name of a key in the key map, such as `?` (Textual: question_mark), `space` or `shift+left`."""
    sign = event.character
    return sign if sign and sign.isprintable() and sign != " " else event.key


def bound(cap: str) -> str:
    """Name of a key in Textual's bindings."""
    return _NAMED.get(cap, cap)


def _bounded(size: tuple[int, int]) -> tuple[int, int]:
    return min(size[0], LARGEST[0]), min(size[1], LARGEST[1])


def _leaves(cap: str, app: TerminalApp) -> bool:
    """Whether a key ends the program; on an open page, where users may type, keys of one character do not."""
    pages = len(app._screen_stack) > 1  # noqa: SLF001 - read by another thread, when there may be no screen yet
    return cap in app.leave_keys and not (pages and len(cap) == 1)
