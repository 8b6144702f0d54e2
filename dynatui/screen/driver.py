"""Between the terminal and Textual: input that no byte can break, and sizes that can be drawn.

Textual's own input thread ends, and the program with it, at a byte that is no text or a number that is no character; it
takes what it does not know for keys, and pastes that hold an escape byte too.
"""

import os
import select
import time
from collections.abc import Iterable, Iterator

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys
from textual.message import Message

from dynatui.screen.keyboard import Keyboard, Pasted, Piece

_POLL_S = 0.1
_AT_ONCE = 2**12


class Interpreter(XTermParser):
    """Textual's parser for pieces that are complete: what it still waits on after one, it does not know."""

    def read(self, piece: Piece) -> Iterator[Message]:
        """What a piece means to the app; nothing where it means nothing."""
        if isinstance(piece, Pasted):
            yield events.Paste(piece.text)
            return
        yield from self.feed(piece)
        if self._timeout_time is not None:
            self._timeout_time = 0.0
            spelled_out = list(self.tick())
            if len(piece) <= len("\x1b["):
                yield from spelled_out  # the escape key, or a key with alt

    def parse_mouse_code(self, code: str) -> Message | None:
        """See Textual's; nothing in a window that is said to have no size."""
        try:
            return super().parse_mouse_code(code)
        except ZeroDivisionError:
            return None

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:  # noqa: FBT001, FBT002 - Textual's
        try:
            return list(super()._sequence_to_key_events(sequence, alt))
        except (ValueError, OverflowError):  # numbers that are none, or no character's
            return [events.Key(Keys.Ignore, sequence)]


class TerminalDriver(LinuxDriver):
    """Textual's driver with another way of reading."""

    def process_message(self, message: Message) -> None:
        """See Textual's; a size counts only from a terminal that has promised to tell sizes."""
        if not isinstance(message, events.Resize) or self._in_band_window_resize:
            super().process_message(message)

    def run_input_thread(self) -> None:
        """Reads until the app closes its input or the terminal is gone."""
        keyboard, interpreter = Keyboard(), Interpreter()
        while not self.exit_event.is_set():
            received = b""
            if select.select([self.fileno], [], [], _POLL_S)[0]:
                try:
                    received = os.read(self.fileno, _AT_ONCE)
                except OSError:
                    return  # gone, which the app finds out by itself
                if not received:
                    return
            for piece in keyboard.take(received, time.monotonic()):
                for message in interpreter.read(piece):
                    self.process_message(message)
