"""Time that this process has waited for a processor, because of other work on the machine or a stop.

Linux counts the waiting time of each thread; on other systems it is unknown. A stop of the whole process shows on every
system, by the processor time that it has used. Knows neither rounds nor models.
"""

import os
import time
from contextlib import closing, suppress
from pathlib import Path

APART_S = 0.01
"""Least time between two readings, in seconds, so that they take some thousandths of the time. Waits of a shorter
period of work may count to the next one."""
_LONGEST = 64
"""Most bytes of a thread's three numbers."""
_UNTOLD = (OSError, ValueError, IndexError)
"""Errors of reading the numbers where a thread has ended, or the system has another format."""


class ThreadWaits:
    """Waiting times of the threads that exist when it is made; their files stay open, a reading takes 1 us each."""

    def __init__(self) -> None:
        self._waited_ns: dict[int, int] = {}
        """Waiting time of each thread at the last reading, in nanoseconds, by its file."""
        for path in Path("/proc/self/task").glob("*/schedstat"):
            with suppress(OSError):  # the thread has ended since
                self._waited_ns[os.open(path, os.O_RDONLY | os.O_CLOEXEC)] = 0
        self.known = bool(self._waited_ns)
        """Whether the system reports waiting times."""

    def look(self) -> float:
        """Waiting time of all threads together so far, in seconds; of ended threads, as of the reading before."""
        for file in self._waited_ns:
            with suppress(*_UNTOLD):
                self._waited_ns[file] = _waited_ns(file)
        return sum(self._waited_ns.values()) / 1e9

    def close(self) -> None:
        """Closes the files of all threads."""
        while self._waited_ns:
            os.close(self._waited_ns.popitem()[0])


class ProcessorWaits:
    """Measures the waiting time within successive periods of work."""

    def __init__(self) -> None:
        self._threads: ThreadWaits | None = None
        """Waits of the threads that exist when the first period begins."""
        self._waited_s = self._looked_s = self._used_s = 0.0

    def begin(self) -> None:
        """Begins a period."""
        if self._threads is None:
            self._threads = ThreadWaits()
        self._look(self._threads)
        self._used_s = time.process_time()

    def end(self, took_s: float) -> float:
        """Ends a period of `took_s` seconds; returns the seconds in which threads waited or the process was stopped."""
        stood_s = took_s - (time.process_time() - self._used_s)
        waited_s = self._look(self._threads) if self._threads else 0.0
        return max(0.0, min(took_s, max(stood_s, waited_s)))

    def close(self) -> None:
        """Ends all measuring."""
        if self._threads:
            self._threads.close()

    def _look(self, threads: ThreadWaits) -> float:
        """Waiting time of threads since the last reading, in seconds; 0 within `APART_S` of that reading."""
        now = time.perf_counter()
        if now - self._looked_s < APART_S:
            return 0.0
        before_s, self._looked_s, self._waited_s = self._waited_s, now, threads.look()
        return self._waited_s - before_s


def waited_s() -> float | None:
    """Time that threads of this process have waited for a processor, in seconds; None where unknown."""
    with closing(ThreadWaits()) as threads:
        return threads.look() if threads.known else None


def waited_here_s() -> float:
    """Time that this thread has waited for a processor, in seconds; 0 where unknown."""
    with suppress(*_UNTOLD), Path("/proc/thread-self/schedstat").open("rb", buffering=0) as file:
        return _waited_ns(file.fileno()) / 1e9
    return 0.0


def _waited_ns(file: int) -> int:
    """Waiting time: the second of three numbers; see Documentation/scheduler/sched-stats.rst of the kernel."""
    return int(os.pread(file, _LONGEST, 0).split()[1])
