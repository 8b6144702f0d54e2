"""Handles the signals that end a program: the first signal ends it gracefully, the next signal interrupts it.

Knows nothing of the work that is interrupted.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
INTERRUPTING = (*STOP_SIGNALS, signal.SIGALRM)
"""The signals that end a program, and the signal of the timer that `stoppable` starts."""
_AGAIN_S = 0.2
"""Seconds between interruptions by the timer, which repeats since work may catch an interruption and block again."""


@contextmanager
def handled(signals: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Context in which these signals call the handler; signals already ignored, as under nohup, stay ignored."""
    taken = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, handler) for number in taken]
    try:
        yield
    finally:
        for number, own in zip(taken, before, strict=True):
            signal.signal(number, own)


@contextmanager
def stoppable(stop: Callable[[int], float | None]) -> Iterator[None]:
    """Context in which the first signal calls `stop`, and each further signal raises KeyboardInterrupt.

    Args:
        stop: Takes the signal's number. Returns the seconds after which work that still runs is interrupted, repeatedly
        until it ends; None if the work must not be interrupted. Raises KeyboardInterrupt if the work cannot end
        gracefully.
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
