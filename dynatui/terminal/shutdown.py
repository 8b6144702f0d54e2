"""The end of the program: soon, whatever it is doing, with the terminal as it was.

A key or a signal asks the app, before all that waits in its queue, and it ends in good order. Its thread may be stuck,
in a write that nobody takes or in a long piece of work: then another thread gives the terminal back and ends the
process. Knows no app and no engine.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dynatui.terminal.output import Line

WITHIN_S = 2.5
"""What is not over by then is ended."""
SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Departure:
    """Watches over the end of one app; only within `watched` does it ever end the process."""

    def __init__(self, line: Line, end: Callable[[int], object] = os._exit) -> None:
        self._line = line
        self._end = end
        self._leave: Callable[[int], object] | None = None
        self._watching = False
        self._deadline: threading.Timer | None = None

    @property
    def begun(self) -> bool:
        """Whether the program ends: no key counts any more."""
        return self._deadline is not None

    def ready(self, leave: Callable[[int], object]) -> None:
        """From now on the app is asked; `leave` takes the exit code and may be called by any thread."""
        self._leave = leave

    def ask(self, code: int) -> None:
        """Asks the app to end, once; one that is not ready yet ends at once."""
        if self.begun:
            return
        self.begin(code)
        if self._leave is None:
            self._end_now(code)
        else:
            self._leave(code)

    def begin(self, code: int) -> None:
        """The program ends with this code: in good order, or at once when its time is up."""
        self._line.leave()
        if self._deadline is None:
            self._deadline = threading.Timer(WITHIN_S, self._end_now, (code,))
            self._deadline.daemon = True
            if self._watching:
                self._deadline.start()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within, signals are heeded, except those that were ignored from the start, and time is limited."""
        heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = [signal.signal(number, self._signalled) for number in heeded]
        self._watching = True
        try:
            yield
        finally:
            self._watching = False
            for number, handler in zip(heeded, before, strict=True):
                signal.signal(number, handler)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if self.begun:
            self._end_now(128 + number)
        self.ask(128 + number)

    def _end_now(self, code: int) -> None:
        if self._watching:
            self._line.restore()
            self._end(code)
