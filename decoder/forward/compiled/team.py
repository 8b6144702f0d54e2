"""Threads that compute passes together. They sleep between passes, and leave a pass in which they would wait.

A thread that helps is a Python thread inside one call of the library, which holds no lock of the interpreter. Knows
nothing of models.
"""

import ctypes
import threading
from dataclasses import dataclass, field

from decoder.forward.compiled.library import Library, Pass


@dataclass(eq=False)
class Helper:
    """One thread of a team."""

    functions: ctypes.CDLL
    number: int
    """Number of the thread in the team; the caller's thread is number 0."""
    job: Pass = field(default_factory=Pass)
    asleep: bool = False
    wakeup: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Starts the thread, which sleeps until it is woken."""
        self.wakeup.acquire()
        threading.Thread(target=self._work, name=f"pass helper {self.number}", daemon=True).start()

    def wake(self, job: Pass) -> None:
        """Lets the thread help with a pass, unless it is still busy."""
        if self.asleep:
            self.asleep, self.job = False, job
            self.wakeup.release()

    def _work(self) -> None:
        while True:
            self.asleep = True
            self.wakeup.acquire()
            self.functions.dynatui_help(ctypes.addressof(self.job), self.number)


class Team:
    """Threads that compute one pass at a time."""

    def __init__(self, library: Library) -> None:
        self._functions = library.functions
        self._helpers: list[Helper] = []
        self._busy = threading.Lock()

    def run(self, job: Pass, threads: int) -> None:
        """Computes a pass with at most `threads` threads; with one if the others compute another pass."""
        if threads == 1 or not self._busy.acquire(blocking=False):
            job.counters = None
            self._functions.dynatui_pass(ctypes.addressof(job))
            return
        try:
            while len(self._helpers) < threads - 1:
                self._helpers.append(Helper(self._functions, len(self._helpers) + 1))
                self._helpers[-1].start()
            for helper in self._helpers[: threads - 1]:
                helper.wake(job)
            self._functions.dynatui_pass(ctypes.addressof(job))
        finally:
            self._busy.release()
