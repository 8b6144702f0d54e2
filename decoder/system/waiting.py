"""Time in which this process waited for a processor, either because of other work on the machine or because the process
was stopped.

Linux counts the waiting time of each thread; on other systems the waiting time is unknown. The time in which the whole
process was stopped is measured on every system: it is elapsed time minus processor time. Independent of rounds and
models.
"""

import os
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

APART_S = 0.01
"""Least time between two readings, so that readings take only a few thousandths of the run's time. Waits in a shorter
period may be counted in the next period.
"""
MOST_WAITED = 0.1
"""Largest share of waits in a measured time that is still used. The share is below a hundredth on an idle machine, a
few hundredths with a screen on two processors, and about a third beside as many busy processes as processors.
"""
_LONGEST = 64
"""Largest length of a schedstat file in bytes; the file has three numbers."""
_UNTOLD = (OSError, ValueError, IndexError)
"""Errors of reading a schedstat file whose thread has ended, or whose format is unknown."""


class ThreadWaits:
    """Waiting times of the threads that exist when this object is made. Their schedstat files stay open, since reading
    an open file takes only 1 us. If a thread other than the main thread makes this object, the main thread is left out:
    it draws the screen, and the work does not wait for the screen.
    """

    def __init__(self) -> None:
        self._waited_ns: dict[int, int] = {}
        """Waiting time of each thread at the last reading, by the descriptor of the thread's open file."""
        drawing = str(os.getpid()) if threading.current_thread() is not threading.main_thread() else ""
        for path in Path("/proc/self/task").glob("*/schedstat"):
            if path.parent.name == drawing:
                continue
            with suppress(OSError):  # the thread has ended in the meantime
                self._waited_ns[os.open(path, os.O_RDONLY | os.O_CLOEXEC)] = 0
        self.known = bool(self._waited_ns)
        """Whether the system reports waiting times."""

    def look(self) -> float:
        """Waiting time of all threads so far, in seconds; a thread that has ended counts with its last reading."""
        for file in self._waited_ns:
            with suppress(*_UNTOLD):
                self._waited_ns[file] = _waited_ns(file)
        return sum(self._waited_ns.values()) / 1e9

    def close(self) -> None:
        while self._waited_ns:
            os.close(self._waited_ns.popitem()[0])


class Waited(NamedTuple):
    queued_s: float
    """Waiting time summed over the threads; includes earlier periods that were too short for a reading."""
    lost_s: float
    """Part of this period in which threads waited for a processor, or the process was stopped."""


class ProcessorWaits:
    """Measures the time that each of several periods of work loses to waits."""

    def __init__(self) -> None:
        self._threads: ThreadWaits | None = None
        """The threads that exist at the start of the first period; None before."""
        self._waited_s = self._looked_s = self._used_s = 0.0

    def begin(self) -> None:
        if self._threads is None:
            self._threads = ThreadWaits()
        self._look(self._threads)
        self._used_s = time.process_time()

    def end(self, took_s: float) -> Waited:
        stood_s = took_s - (time.process_time() - self._used_s)
        queued_s = self._look(self._threads) if self._threads else 0.0
        return Waited(queued_s, max(0.0, min(took_s, max(stood_s, queued_s))))

    def close(self) -> None:
        if self._threads:
            self._threads.close()

    def _look(self, threads: ThreadWaits) -> float:
        """Waits since the last reading, in seconds; 0 if that was less than `APART_S` ago."""
        now = time.perf_counter()
        if now - self._looked_s < APART_S:
            return 0.0
        before_s, self._looked_s, self._waited_s = self._waited_s, now, threads.look()
        return self._waited_s - before_s


def waited_s() -> float | None:
    """Waiting time of all threads of this process so far, in seconds; None if unknown."""
    with closing(ThreadWaits()) as threads:
        return threads.look() if threads.known else None


def waited_here_s() -> float:
    """Waiting time of the calling thread so far, in seconds; 0 if unknown."""
    try:
        return _waited_ns(_here.file.number) / 1e9
    except _UNTOLD:
        return 0.0


class OpenFile:
    """A file that stays open as long as this object exists; `number` is its descriptor, -1 if it cannot be opened."""

    def __init__(self, path: str) -> None:
        self.number = -1
        with suppress(OSError):
            self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


class OwnFile(threading.local):
    """A file that each thread opens for itself at the first access, and that stays open until the thread ends."""

    def __init__(self, path: str) -> None:
        self.file = OpenFile(path)


_here = OwnFile("/proc/thread-self/schedstat")


def _waited_ns(file: int) -> int:
    """Waiting time in a schedstat file, the second number (see the kernel's sched-stats.rst)."""
    return int(os.pread(file, _LONGEST, 0).split()[1])
