"""Signals that ask the program to stop, and a handler for them within a block."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


@contextmanager
def handled(signals: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within, these signals call the handler; those that were ignored from the start, as under nohup, stay ignored."""
    taken = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, handler) for number in taken]
    try:
        yield
    finally:
        for number, own in zip(taken, before, strict=True):
            signal.signal(number, own)
