"""Threads that compute passes together. They sleep between passes, and leave a pass in which they would wait.

A thread that helps is a Python thread inside one call of the library, which holds no lock of the interpreter. Knows
nothing of models.
"""

import ctypes
import os
import sys
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
    caller_cpu: int = -1
    """CPU on which the pass was begun; -1 if unknown."""
    asleep: bool = False
    wakeup: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Starts the thread, which sleeps until it is woken."""
        self.wakeup.acquire()
        threading.Thread(target=self._work, name=f"pass helper {self.number}", daemon=True).start()

    def wake(self, job: Pass, caller_cpu: int) -> None:
        """Lets the thread help with a pass, unless it is still busy."""
        if self.asleep:
            self.asleep, self.job, self.caller_cpu = False, job, caller_cpu
            self.wakeup.release()

    def _work(self) -> None:
        while True:
            self.asleep = True
            self.wakeup.acquire()
            if self.functions.dynatui_cpu() == self.caller_cpu >= 0:
                leave_cpu(self.caller_cpu)
            self.functions.dynatui_help(ctypes.addressof(self.job), self.number)


def leave_cpu(cpu: int) -> None:
    """Moves this thread to another CPU if the process may use one. Some kernels, mostly of virtual machines, wake a
    thread on the CPU of the thread that wakes it even if another CPU is idle; both then run at half speed.
    """
    if sys.platform == "linux" and (others := os.sched_getaffinity(os.getpid()) - {cpu}):
        os.sched_setaffinity(0, others)


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
            cpu = self._functions.dynatui_cpu()
            for helper in self._helpers[: threads - 1]:
                helper.wake(job, cpu)
            self._functions.dynatui_pass(ctypes.addressof(job))
        finally:
            self._busy.release()
