"""Ends the program within a deadline after a quit key or a signal, even if the program is blocked."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from dynatui.terminal.output import Output

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
INTERRUPTING = (*STOP_SIGNALS, signal.SIGALRM)
"""The signals that end the program, and the signal of the timer in `stoppable`."""
_AGAIN_S = 0.2
"""Period, in seconds, of the timer in `stoppable`: work may catch one interruption and block again."""


@contextmanager
def handled(signals: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the context, `handler` handles the signals; signals that are ignored, as under nohup, stay ignored."""
    taken = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, handler) for number in taken]
    try:
        yield
    finally:
        for number, own in zip(taken, before, strict=True):
            signal.signal(number, own)


@contextmanager
def stoppable(stop: Callable[[int], float | None]) -> Iterator[None]:
    """The first signal calls `stop` with its number; each further signal raises KeyboardInterrupt.

    `stop` returns the seconds after which remaining work is interrupted, repeatedly, or None for never; it raises
    KeyboardInterrupt if the work cannot end gracefully.
    """
    stopped = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        again, stopped = stopped, True
        if again:
            raise KeyboardInterrupt
        patience_s = stop(number)
        if patience_s is not None:
            signal.setitimer(signal.ITIMER_REAL, patience_s, _AGAIN_S)

    with handled(INTERRUPTING, handle):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


WITHIN_S = 2.5
"""Longest time, in seconds, from the quit key or signal to the end of the process."""


class Shutdown:
    """Ends the app and, after a deadline, the process. Outside the context `watched`, does not end the process."""

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
        """Registers the function that ends the app: it takes the exit code and may be called by any thread."""
        self._leave = leave

    def request(self, code: int) -> None:
        """Ends the app at the first call; if no function is registered, ends the process immediately."""
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
        """Within the context, signals end the app and the deadline applies; signals that are ignored stay ignored."""
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
