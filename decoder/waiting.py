"""How long this process has been without a processor: what other work on the machine, or a stop, takes from it.

Linux counts for each thread how long it has waited for a processor; elsewhere that is not known. That the whole
process stood still is known everywhere, by the processor time that it has used. Knows neither rounds nor models.
"""

import os
import time
from contextlib import closing, suppress
from pathlib import Path

APART_S = 0.01
"""Threads are not looked at more often, so that looks take some thousandths of the time. Of a shorter stretch of work,
waits may count for the next one."""
_LONGEST = 64
"""Bytes that three numbers of a thread take at most."""
_UNTOLD = (OSError, ValueError, IndexError)
"""What comes of reading them where a thread has ended, or the system tells something else there."""


class ThreadWaits:
    """Of the threads that there are when it is made. Their files stay open: a look costs about a microsecond each."""

    def __init__(self) -> None:
        self._waited_ns: dict[int, int] = {}
        """By the file of each thread, at the last look."""
        for path in Path("/proc/self/task").glob("*/schedstat"):
            with suppress(OSError):  # the thread has ended since
                self._waited_ns[os.open(path, os.O_RDONLY | os.O_CLOEXEC)] = 0
        self.known = bool(self._waited_ns)
        """Whether the system tells."""

    def look(self) -> float:
        """Seconds that all of them together have waited so far; of one that has ended, those at the look before."""
        for file in self._waited_ns:
            with suppress(*_UNTOLD):
                self._waited_ns[file] = _waited_ns(file)
        return sum(self._waited_ns.values()) / 1e9

    def close(self) -> None:
        """Closes their files."""
        while self._waited_ns:
            os.close(self._waited_ns.popitem()[0])


class ProcessorWaits:
    """Tells of one stretch of work after the other how much of it went by without a processor."""

    def __init__(self) -> None:
        self._threads: ThreadWaits | None = None
        """Those that there are when the first stretch begins."""
        self._waited_s = self._looked_s = self._used_s = 0.0

    def begin(self) -> None:
        """A stretch begins."""
        if self._threads is None:
            self._threads = ThreadWaits()
        self._look(self._threads)
        self._used_s = time.process_time()

    def end(self, took_s: float) -> float:
        """The stretch ends, which took so many seconds; how many of them threads waited, or the process stood still."""
        stood_s = took_s - (time.process_time() - self._used_s)
        waited_s = self._look(self._threads) if self._threads else 0.0
        return max(0.0, min(took_s, max(stood_s, waited_s)))

    def close(self) -> None:
        """Nothing is watched any more."""
        if self._threads:
            self._threads.close()

    def _look(self, threads: ThreadWaits) -> float:
        """Seconds that threads have waited since the last look; 0 without one where that was just now."""
        now = time.perf_counter()
        if now - self._looked_s < APART_S:
            return 0.0
        before_s, self._looked_s, self._waited_s = self._waited_s, now, threads.look()
        return self._waited_s - before_s


def waited_s() -> float | None:
    """Seconds that the threads of this process have waited for a processor; None where the system does not say."""
    with closing(ThreadWaits()) as threads:
        return threads.look() if threads.known else None


def waited_here_s() -> float:
    """Seconds that this thread has waited for a processor; 0 where the system does not say."""
    with suppress(*_UNTOLD), Path("/proc/thread-self/schedstat").open("rb", buffering=0) as file:
        return _waited_ns(file.fileno()) / 1e9
    return 0.0


def _waited_ns(file: int) -> int:
    """The second of the three numbers; see Documentation/scheduler/sched-stats.rst of the kernel."""
    return int(os.pread(file, _LONGEST, 0).split()[1])
