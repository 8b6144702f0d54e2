"""Ends the program within a deadline, whatever it is doing, and restores the terminal."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dynatui.terminal.output import Output
from dynatui.terminal.signals import STOP_SIGNALS, handled

WITHIN_S = 2.5
"""Time from the key or signal that ends the program to the end of the process."""


class Shutdown:
    """Ends the process only within the context `watched`."""

    def __init__(self, output: Output, end: Callable[[int], object] = os._exit) -> None:
        self._output = output
        self._end = end
        self._leave: Callable[[int], object] | None = None
        self._watching = False
        self._deadline: threading.Timer | None = None

    @property
    def begun(self) -> bool:
        return self._deadline is not None

    def ready(self, leave: Callable[[int], object]) -> None:
        """`leave` takes the exit code and may be called by any thread."""
        self._leave = leave

    def request(self, code: int) -> None:
        """Ends the app once; without a registered function, ends the process immediately."""
        if self.begun:
            return
        self.begin(code)
        if self._leave is None:
            self._end_now(code)
        else:
            self._leave(code)

    def begin(self, code: int) -> None:
        self._output.leave()
        if self._deadline is None:
            self._deadline = threading.Timer(WITHIN_S, self._end_now, (code,))
            self._deadline.daemon = True
            if self._watching:
                self._deadline.start()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Signals end the app and the deadline applies; signals already ignored stay ignored."""
        with handled(STOP_SIGNALS, self._signalled):
            self._watching = True
            try:
                yield
            finally:
                self._watching = False

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if self.begun:
            self._end_now(128 + number)
        self.request(128 + number)

    def _end_now(self, code: int) -> None:
        if self._watching:
            self._output.restore()
            self._end(code)
