"""Linear layers by torch's public operators, products of output heads with results in float32, and a timing trial that
finds whether bfloat16 or float32 is faster on this CPU.
"""

import functools
import time
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

HALF = (torch.bfloat16, torch.float16)
TRIAL_WIDTH, TRIAL_LAYERS, TRIAL_ROWS, TRIAL_REPEATS = 1024, 4, 4, 12
"""Sizes of the trial: its weights exceed a core's caches, and a small tree has about `TRIAL_ROWS` rows."""


class Linear:
    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight = weight.to(dtype)
        self.bias = None if bias is None else bias.to(dtype)

    def __call__(self, rows: Tensor) -> Tensor:
        """The result has the dtype of the weights."""
        return functional.linear(rows.to(self.weight.dtype), self.weight, self.bias)

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """Sum of `residual` and the product; overwrites `residual`."""
        if self.bias is not None or residual.dtype is not self.weight.dtype:
            return residual.add_(self(rows))
        return residual.addmm_(rows, self.weight.t())


@functools.cache
@torch.inference_mode()
def products_pay_in_bfloat16() -> bool:
    """Whether products in bfloat16 are faster than in float32, by a trial of 0.1 s once per process."""
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


def product(rows: Float[Tensor, "*N X"], weight: Float[Tensor, "V X"], bias: Tensor | None) -> Float[Tensor, "*N V"]:
    """Product of an output head; in float32 if `has_wide_product` is true, else in the weight's dtype."""
    if not has_wide_product(weight.device, weight.dtype):
        return functional.linear(rows, weight, bias)
    flat = rows.flatten(0, -2)
    # torch.compile cannot infer the shape of the result of addmm with `out_dtype` (torch 2.11).
    if bias is None or torch.compiler.is_compiling():
        wide = torch.mm(flat, weight.t(), out_dtype=torch.float32)
        wide = wide if bias is None else wide + bias
    else:
        wide = torch.addmm(bias, flat, weight.t(), out_dtype=torch.float32)
    logits: Tensor = wide.unflatten(0, rows.shape[:-1])
    return logits


def has_wide_product(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products of matrices in half precision can have float32 results. Tried once per process, by products that
    must not be captured in a CUDA graph.
    """
    return dtype in HALF and device.type == "cuda" and _tried(device, dtype)


def widen(module: Any) -> None:
    """Makes a module's output head use `product`, unless the head is quantised or was changed by another library."""
    head = module.get_output_embeddings()
    plain = type(head) is nn.Linear and "forward" not in vars(head)
    if plain and has_wide_product(head.weight.device, head.weight.dtype):
        head.forward = partial(_forward, head)


def _forward(head: nn.Linear, rows: Tensor) -> Tensor:
    return product(rows, head.weight, head.bias)


@functools.cache
@torch.no_grad()
def _tried(device: torch.device, dtype: torch.dtype) -> bool:
    rows, matrix = torch.ones((2, 8, 8), dtype=dtype, device=device)
    try:
        torch.addmm(rows[0], rows, matrix, out_dtype=torch.float32)
        torch.mm(rows, matrix, out_dtype=torch.float32)
    except (RuntimeError, TypeError):
        return False
    return True
