"""Speed of this CPU with torch's current number of threads: bandwidth of reading memory, and rate of arithmetic.

The result is the shortest of several repetitions, since other processes can only lengthen a repetition. Callers give a
clock that leaves out waits for a processor. On an idle machine, a measurement takes less than 0.1 s.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

LARGEST = 1 << 28
"""Largest number of bytes that are read; a processor's caches are smaller."""
LIMIT_S = 0.04
"""Total time after which no further repetition starts."""
FEWEST = 3
"""Smallest number of repetitions after the warm-up."""
ROWS, WIDTH = 64, 1024
"""Shape of the measured product: as many rows as in a wide verification, and a square matrix of this width."""


def read_bytes_per_s(size: int, clock: Callable[[], float]) -> float:
    """Bandwidth of reading `size` bytes repeatedly; data that fits in the caches is read faster. A sum is timed, since
    torch has no faster way to read memory. `clock` returns seconds.
    """
    numbers = torch.zeros(max(1, min(size, LARGEST) // torch.float32.itemsize))
    return numbers.nbytes / _shortest_s(numbers.sum, clock)


@torch.inference_mode()
def flops_per_s(dtype: torch.dtype, clock: Callable[[], float]) -> float:
    """Rate of arithmetic in matrix products with weights in `dtype`; `clock` returns seconds."""
    weight, rows = torch.full((WIDTH, WIDTH), 0.01, dtype=dtype), torch.ones(ROWS, WIDTH)
    return 2 * ROWS * WIDTH**2 / _shortest_s(lambda: functional.linear(rows.to(dtype), weight), clock)


def _shortest_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Shortest time of `work`, after a warm-up."""
    work()
    times = list[float]()
    while len(times) < FEWEST or sum(times) < LIMIT_S:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)
