"""Whether bfloat16 pays on this CPU: a short trial of the products that decoding is made of decides.

Knows no models. The weights are more than a core's own caches hold, since a model's are.
"""

import functools
import time

import torch

from decoder.forward.cpu.packed import Linear, pack

WIDTH, LAYERS = 1024, 4
ROWS = 4
"""What a verification of a small tree has."""
REPEATS = 12


@functools.cache
@torch.inference_mode()
def bfloat16_pays() -> bool:
    """Whether matrices in bfloat16 are multiplied faster than in float32; takes a tenth of a second, once."""
    threads = torch.get_num_threads()
    # One thread alone: where cores are busy, two wait for each other and the trial says nothing.
    torch.set_num_threads(1)
    try:
        half, single = _layers(torch.bfloat16), _layers(torch.float32)
        times = [(_seconds(half), _seconds(single)) for _ in range(REPEATS)]
    finally:
        torch.set_num_threads(threads)
    return min(half_s for half_s, _ in times) < min(single_s for _, single_s in times)


def _layers(dtype: torch.dtype) -> list[Linear]:
    return [pack(torch.full((WIDTH, WIDTH), 0.01), None, dtype) for _ in range(LAYERS)]


def _seconds(layers: list[Linear]) -> float:
    rows = torch.ones(ROWS, WIDTH)
    start = time.perf_counter()
    for layer in layers:
        layer(rows)
    return time.perf_counter() - start
