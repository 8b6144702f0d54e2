"""Speed of this CPU, measured with torch's present number of threads: bandwidth of reading, and rate of arithmetic.

The shortest of several repetitions counts, without time in which this thread waited for a processor, since other
processes only lengthen them. On an idle machine a measurement takes less than 0.1 s.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

LARGEST = 1 << 28
"""Bytes that are read, at most; more than fit in a processor's caches."""
LIMIT_S = 0.04
"""Repetitions end after this time."""
FEWEST = 3
"""Repetitions after the warm-up."""
ROWS, WIDTH = 64, 1024
"""Of the measured product: rows as in a wide verification, and a square matrix of this width."""


def read_bytes_per_s(size: int, clock: Callable[[], float]) -> float:
    """For `size` bytes read again and again; what fits in the caches is read faster. A sum is measured, since torch has
    no faster way to read memory. `clock` gives seconds.
    """
    numbers = torch.zeros(max(1, min(size, LARGEST) // torch.float32.itemsize))
    return numbers.nbytes / _shortest_s(numbers.sum, clock)


@torch.inference_mode()
def flops_per_s(dtype: torch.dtype, clock: Callable[[], float]) -> float:
    """In products of matrices with weights in `dtype`; `clock` gives seconds."""
    weight, rows = torch.full((WIDTH, WIDTH), 0.01, dtype=dtype), torch.ones(ROWS, WIDTH)
    return 2 * ROWS * WIDTH**2 / _shortest_s(lambda: functional.linear(rows.to(dtype), weight), clock)


def _shortest_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """After a warm-up."""
    work()
    times = list[float]()
    while len(times) < FEWEST or sum(times) < LIMIT_S:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)
