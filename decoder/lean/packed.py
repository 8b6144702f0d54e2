"""Matrix products with weights that oneDNN has laid out for this CPU: the only module that uses torch's private operators.

With plain weights the price of a product grows with its rows, and a draft tree loses to plain decoding; with packed
ones eight rows cost little more than one. Where torch or the CPU lacks the private operators, the public `linear` gives
the same numbers.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

HALF = (torch.bfloat16, torch.float16)


class Linear(Protocol):
    """x W^T + b, computed in the dtype of the weights."""

    dtype: torch.dtype

    def __call__(self, rows: Tensor) -> Tensor:
        """The product, in the dtype of the weights."""

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """The product and `residual`, in the dtype of `residual`, which may be overwritten."""


class PublicLinear:
    """The fallback: any torch, any CPU, any dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.dtype = weight.dtype
        self._weight = weight
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """See `Linear`."""
        return functional.linear(rows.to(self.dtype), self._weight, self._bias)

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `Linear`."""
        return residual.add_(self(rows))


class PackedLinear:
    """oneDNN's layout, and its fused sum where the residual has the weights' dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)  # noqa: SLF001 - see above
        self._bias = bias
        self._product: Any = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001
        self._sum: Any = torch.ops.mkldnn._linear_pointwise.binary  # noqa: SLF001

    def __call__(self, rows: Tensor) -> Tensor:
        """See `Linear`."""
        product: Tensor = self._product(rows.to(self.dtype), self._weight, self._bias, "none", [], "")
        return product

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `Linear`."""
        if residual.dtype is not self.dtype:
            return residual.add_(self(rows))
        total: Tensor = self._sum(rows, residual, self._weight, self._bias, "add")
        return total


def pack(weight: Tensor, bias: Tensor | None) -> Linear:
    """A linear layer in the fastest form that exists here for these weights."""
    # Strides that are no plain matrix would be packed as if they were one.
    weight, bias = weight.contiguous(), None if bias is None else bias.contiguous()
    return PackedLinear(weight, bias) if can_pack(weight.dtype) else PublicLinear(weight, bias)


def can_pack(dtype: torch.dtype) -> bool:
    """Whether the private operators exist, run on this CPU in this dtype, and compute what `linear` does."""
    if dtype not in _TRIED:
        _TRIED[dtype] = _try(dtype)
    return _TRIED[dtype]


_TRIED: dict[torch.dtype, bool] = {}


def _try(dtype: torch.dtype) -> bool:
    if dtype not in (torch.float32, *HALF) or not torch.backends.mkldnn.is_available():
        return False
    weight = torch.arange(-48.0, 48.0).reshape(6, 16).mul_(1 / 64).to(dtype)
    bias = torch.arange(6.0).to(dtype)
    rows = torch.arange(32.0).reshape(2, 16).mul_(1 / 16).to(dtype)
    residual = torch.ones(2, 6, dtype=dtype)
    expected = functional.linear(rows.float(), weight.float(), bias.float())
    tolerance = 1e-5 if dtype is torch.float32 else 0.2
    try:
        packed = PackedLinear(weight, bias)
        found, total = packed(rows), packed.added_to(residual, rows)
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return False
    close = (found.float() - expected).abs().max() <= tolerance and (total.float() - expected - 1).abs().max() <= tolerance
    return bool(close) and found.dtype is dtype
