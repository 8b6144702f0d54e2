"""Linear layers by torch's public operators, and the trial that chooses a CPU's dtype for them."""

import functools
import time

import torch
from torch import Tensor
from torch.nn import functional

HALF = (torch.bfloat16, torch.float16)
TRIAL_WIDTH, TRIAL_LAYERS, TRIAL_ROWS, TRIAL_REPEATS = 1024, 4, 4, 12
"""The weights exceed a core's caches; a small tree has about `TRIAL_ROWS` rows."""


class Linear:
    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight = weight.to(dtype)
        self.bias = None if bias is None else bias.to(dtype)

    def __call__(self, rows: Tensor) -> Tensor:
        """The result has the dtype of the weights."""
        return functional.linear(rows.to(self.weight.dtype), self.weight, self.bias)

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """Overwrites `residual`."""
        if self.bias is not None or residual.dtype is not self.weight.dtype:
            return residual.add_(self(rows))
        return residual.addmm_(rows, self.weight.t())


@functools.cache
@torch.inference_mode()
def products_pay_in_bfloat16() -> bool:
    """A trial of 0.1 s, once per process."""
    threads = torch.get_num_threads()
    # Only one thread is used: on busy cores, two threads would wait for each other and make the trial meaningless.
    torch.set_num_threads(1)
    try:
        layers = [_layers(dtype) for dtype in (torch.bfloat16, torch.float32)]
        times = [[_seconds(each) for each in layers] for _ in range(TRIAL_REPEATS)]
    finally:
        torch.set_num_threads(threads)
    half_s, single_s = (min(column) for column in zip(*times, strict=True))
    return bool(half_s < single_s)


def _layers(dtype: torch.dtype) -> list[Linear]:
    return [Linear(torch.full((TRIAL_WIDTH, TRIAL_WIDTH), 0.01), None, dtype) for _ in range(TRIAL_LAYERS)]


def _seconds(layers: list[Linear]) -> float:
    rows = torch.ones(TRIAL_ROWS, TRIAL_WIDTH)
    start = time.perf_counter()
    for layer in layers:
        layer(rows)
    return time.perf_counter() - start
