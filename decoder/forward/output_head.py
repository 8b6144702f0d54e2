"""Products of output heads in half precision with results in float32, on an accelerator. A logit near 16 that is
rounded to bfloat16 is a multiple of 1/8, so that the best tokens often tie, and passes of different sizes choose
differently among them. Only the sum, which is in float32 anyway, is not rounded, as with the fp32 LM heads of vLLM and
SGLang. Knows no model.
"""

import functools
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.linear import HALF


def product(rows: Float[Tensor, "*N X"], weight: Float[Tensor, "V X"], bias: Tensor | None) -> Float[Tensor, "*N V"]:
    """In float32 if an accelerator has such a product of a weight in half precision, else in the weight's dtype."""
    if not has_wide_product(weight.device, weight.dtype):
        return functional.linear(rows, weight, bias)
    flat = rows.flatten(0, -2)
    # Torch 2.11 has no rule for the shape of addmm's result in another dtype, which a compiler needs.
    if bias is None or torch.compiler.is_compiling():
        wide = torch.mm(flat, weight.t(), out_dtype=torch.float32)
        wide = wide if bias is None else wide + bias
    else:
        wide = torch.addmm(bias, flat, weight.t(), out_dtype=torch.float32)
    logits: Tensor = wide.unflatten(0, rows.shape[:-1])
    return logits


def has_wide_product(device: torch.device, dtype: torch.dtype) -> bool:
    """Tried once per process, by products that no CUDA graph may contain."""
    return dtype in HALF and device.type == "cuda" and _tried(device, dtype)


def widen(module: Any) -> None:
    """Heads that are quantised, or already changed by another library, stay as they are."""
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
