"""Handles the signals that end a program: the first one gracefully, the next by an interruption."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
INTERRUPTING = (*STOP_SIGNALS, signal.SIGALRM)
"""The signals that end a program, and that of the timer of `stoppable`."""
_AGAIN_S = 0.2
"""The timer repeats, since work may catch an interruption and block again."""


@contextmanager
def handled(signals: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Signals already ignored, as under nohup, stay ignored."""
    taken = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, handler) for number in taken]
    try:
        yield
    finally:
        for number, own in zip(taken, before, strict=True):
            signal.signal(number, own)


@contextmanager
def stoppable(stop: Callable[[int], float | None]) -> Iterator[None]:
    """The first signal calls `stop` with its number, each further one raises KeyboardInterrupt.

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
