"""Number of CPU threads, chosen by a short trial within the cores that the process may use.

With more threads than free cores, threads wait for each other in every matrix product, which then takes several times
as long. Small models are slower with a second thread even if a core is free.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

AWAKE_S = 0.0002
"""Approximate idle time after which torch's threads sleep; see `decoder.system.openmp`."""
WARMING_NUMBERS = 1 << 16
"""Numbers per thread in the task that wakes the threads; with fewer numbers, torch would not use all threads."""
REPEATS = 5
LIMIT_S = 0.3
"""A thread count whose trials have taken this many seconds in total gets no further trial."""
WORTH = 0.95
"""A larger number of threads is chosen only if it reduces the time to less than this share."""
SWITCH_S = 0.0005
"""Python's thread switch interval during rounds; the default is about as long as a round."""


@contextmanager
def quick_switches(device: torch.device) -> Iterator[None]:
    """Shortens Python's thread switch interval, so that a thread that waited for an accelerator resumes soon even if
    the screen's thread is busy. On a CPU, the interval stays unchanged.
    """
    if device.type == "cpu":
        yield
        return
    # A run that a program leaves open at its exit ends after Python has removed the modules' names.
    before, set_interval = sys.getswitchinterval(), sys.setswitchinterval
    set_interval(min(before, SWITCH_S))
    try:
        yield
    finally:
        set_interval(before)


def warm_threads() -> None:
    """Wakes torch's CPU threads, since waking them often takes longer than the next product."""
    torch.empty(WARMING_NUMBERS * torch.get_num_threads()).zero_()


def choose_threads(
    run: Callable[[], object], given: int | None = None, clock: Callable[[], float] = time.perf_counter
) -> int:
    """Times `run` with several numbers of threads, up to `given` (by default the current number); sets torch's number
    of threads to the number that `fewest_worth_it` chooses, and returns it. If the user has set OMP_NUM_THREADS,
    changes nothing.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    most = min(given or torch.get_num_threads(), usable_cores())
    counts = [count for count in (1 << bit for bit in range(most.bit_length())) if count < most] + [most]
    times: dict[int, list[float]] = {count: [] for count in counts}
    # Each repeat runs every thread count once, so that other load on the machine affects all counts equally.
    for repeat in range(REPEATS + 1):
        for count in counts:
            # The first run with each thread count is a warm-up: its time is dropped after the second run.
            if not times[count] or sum(times[count]) < LIMIT_S:
                times[count] = [*times[count][repeat == 1 :], _timed(run, count, clock)]
    chosen = fewest_worth_it({count: statistics.median(seconds) for count, seconds in times.items()})
    torch.set_num_threads(chosen)
    return chosen


def fewest_worth_it(seconds: dict[int, float]) -> int:
    """Chosen number of threads, given the time with each number, in seconds. A larger number is chosen only if its time
    is less than `WORTH` times the time of the number chosen so far.
    """
    best, *more = sorted(seconds)
    for count in more:
        if seconds[count] < WORTH * seconds[best]:
            best = count
    return best


def _timed(run: Callable[[], object], threads: int, clock: Callable[[], float]) -> float:
    torch.set_num_threads(threads)
    start = clock()
    run()
    return clock() - start


def usable_cores() -> int:
    """CPUs that this process may use, limited by the CPU quota of its container. Every hardware thread counts, unlike
    in torch's default number of threads.
    """
    import loky  # noqa: PLC0415 - importing takes 10 ms, wasted if OMP_NUM_THREADS is set

    count: int = loky.cpu_count()
    return count
