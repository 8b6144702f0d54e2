"""Textual's terminal driver, made robust: no input can end the input thread or be mistaken for keys."""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.keys import Keys
from textual.message import Message

from dynatui.terminal.foreground import wait_for_foreground
from dynatui.terminal.keyboard import Keyboard, Pasted, Piece
from dynatui.terminal.shutdown import Shutdown

LARGEST = (1000, 400)
"""Cells outside this part stay blank."""
_POLL_S = 0.1
_AT_ONCE = 2**12
_NAMED = {",": "comma"}
"""Keys whose character has another meaning in Textual's bindings."""


@runtime_checkable
class Leavable(Protocol):
    shutdown: Shutdown
    leave_keys: frozenset[str]


class Interpreter(XTermParser):
    """Gets one complete piece of input at a time; if it waits for more, the piece is unknown, escape, or an alt key."""

    def read(self, piece: Piece) -> Iterator[Message]:
        if isinstance(piece, Pasted):
            yield events.Paste(piece.text)
            return
        yield from self.feed(piece)
        if self._timeout_time is not None:
            self._timeout_time = 0.0
            spelled_out = list(self.tick())
            if len(piece) <= len("\x1b["):
                yield from spelled_out  # the piece is the escape key, or a key with alt

    def parse_mouse_code(self, code: str) -> Message | None:
        """None if the terminal has reported a size of 0."""
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
    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._size = size or self._get_terminal_size()
        self._continued = False
        """Whether the process was continued since it last took the terminal, or began to."""

    def process_message(self, message: Message) -> None:
        """Quit keys take effect at once; a size counts only if the terminal has announced that it sends sizes."""
        app = self._app
        if (
            isinstance(message, events.Key)
            and isinstance(app, Leavable)
            and _leaves(cap_of(message), app.leave_keys, app)
        ):
            app.shutdown.request(0)
        elif not isinstance(message, events.Resize):
            super().process_message(message)
        elif self._in_band_window_resize and message.size:
            size = Size(*_bounded(message.size))
            super().process_message(events.Resize(size, size, pixel_size=message.pixel_size))

    def start_application_mode(self) -> None:
        """Repeats the start, since Textual takes nothing if a signal interrupts its own check of the foreground."""
        thread_before = self._key_thread
        while self._key_thread is thread_before:
            wait_for_foreground(self.fileno)
            self._continued = False
            super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual does not annotate it

    def stop_application_mode(self) -> None:
        """After a stop, does nothing until the terminal is taken again."""
        if not self._must_signal_resume:
            super().stop_application_mode()

    def disable_input(self) -> None:
        """After a stop, does nothing until the terminal is taken again."""
        if not self._must_signal_resume:
            super().disable_input()

    def _sigtstp_application(self, *_signalled: object) -> None:
        """Acts between two callbacks of the event loop; after the app's end, only stops the process."""
        if self._loop.is_closed():
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_signalled: object) -> None:
        """Acts between two callbacks, since a second signal could interrupt the start of the driver's threads."""
        self._continued = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        """After SIGSTOP, which Textual does not notice, first ends the running threads."""
        taken_since = not self._continued
        if taken_since or (isinstance(self._app, Leavable) and self._app.shutdown.begun):
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
    """Such as `?` (not question_mark), `space`, `shift+left`."""
    sign = event.character
    return sign if sign and sign.isprintable() and sign != " " else event.key


def bound(cap: str) -> str:
    """As Textual's bindings name a key."""
    return _NAMED.get(cap, cap)


def _bounded(size: tuple[int, int]) -> tuple[int, int]:
    return min(size[0], LARGEST[0]), min(size[1], LARGEST[1])


def _leaves(cap: str, leave_keys: frozenset[str], app: App[Any]) -> bool:
    """Letter keys do not end the program on an open page, where users may type letters."""
    pages = len(app._screen_stack) > 1  # noqa: SLF001 - read by another thread, when there may be no screen yet
    return cap in leave_keys and not (pages and len(cap) == 1)
