"""Matrix products with weights packed for this CPU. Only this module uses undocumented operators of torch.

With plain weights, the time of a product grows with the number of rows, so that verifying a draft tree is slower than
plain decoding; with packed weights, eight rows take little longer than one row. A single row is read faster from plain
weights on some CPUs, so both layouts are kept there. If torch or the CPU lacks an operator, the next best operator is
used, and in the last resort the public `linear`.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

HALF = (torch.bfloat16, torch.float16)
TRIAL_WIDTH, TRIAL_LAYERS, TRIAL_ROWS, TRIAL_REPEATS = 1024, 4, 4, 12
"""Sizes of the speed trials. The weights exceed a core's caches; `TRIAL_ROWS` is the number of rows in the verification
of a small tree.
"""
SECOND_LAYOUT_GAIN = 0.95
"""Weights are kept in a second layout only if a product of one row then takes less than this fraction of its time."""
SECOND_LAYOUT_WEIGHTS = 1 << 22
"""Maximum number of weights of a matrix that is kept in two layouts. Models with larger matrices are faster on several
threads, which read only packed weights.
"""


class Linear(Protocol):
    """A linear layer: rows x are mapped to x W^T + b."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Output rows of the layer, in the dtype of the implementation."""

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """Sum of `residual` and the layer's output rows, in the dtype of `residual`; `residual` may be overwritten."""


class PublicLinear:
    """A `Linear` that calls torch's public `linear`, which exists in every release and for every device and dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight = weight.to(dtype)
        self.bias = None if bias is None else bias.to(dtype)

    def __call__(self, rows: Tensor) -> Tensor:
        """See `Linear`."""
        return functional.linear(rows.to(self.weight.dtype), self.weight, self.bias)

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `Linear`."""
        if self.bias is not None or residual.dtype is not self.weight.dtype:
            return residual.add_(self(rows))
        return residual.addmm_(rows, self.weight.t())


class OneDnnLinear:
    """A `Linear` with oneDNN's packed weights, and oneDNN's fused sum if the residual has the weights' dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        operators = torch.ops.mkldnn
        self._dtype = dtype
        self._weight = operators._reorder_linear_weight(weight.to(dtype).contiguous())  # noqa: SLF001 - see above
        self._bias = None if bias is None else bias.to(dtype)
        self._product: Any = operators._linear_pointwise.default  # noqa: SLF001
        self._sum: Any = operators._linear_pointwise.binary  # noqa: SLF001

    def __call__(self, rows: Tensor) -> Tensor:
        """See `Linear`."""
        product: Tensor = self._product(rows.to(self._dtype), self._weight, self._bias, "none", [], "")
        return product

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `Linear`."""
        if residual.dtype is not self._dtype:
            return residual.add_(self(rows))
        total: Tensor = self._sum(rows, residual, self._weight, self._bias, "add")
        return total


class TwoLayoutLinear:
    """A `Linear` in float32 with oneDNN's packed weights and, for a single row on one thread, transposed weights.

    A product of one row takes as long as reading the weights. On one thread, torch's product may read transposed
    weights faster than oneDNN reads packed weights; on several threads, oneDNN is faster.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._packed = OneDnnLinear(weight, bias, dtype)
        self._transposed = weight.to(dtype).t().contiguous()
        self._bias = None if bias is None else bias.to(dtype)

    def __call__(self, rows: Tensor) -> Tensor:
        """See `Linear`."""
        if len(rows) > 1 or torch.get_num_threads() > 1:
            return self._packed(rows)
        return rows.mm(self._transposed) if self._bias is None else torch.addmm(self._bias, rows, self._transposed)

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `Linear`."""
        if len(rows) > 1 or torch.get_num_threads() > 1:
            return self._packed.added_to(residual, rows)
        total = residual.addmm_(rows, self._transposed)
        return total if self._bias is None else total.add_(self._bias)


class FbgemmLinear:
    """A `Linear` that FBGEMM computes, with float16 weights and float32 rows.

    Also used for bfloat16 weights, since float16 is more precise within its range. A call takes less time than a call
    of oneDNN's operator, and needs no conversion of rows and products.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        if dtype not in HALF or float(weight.abs().max()) > torch.finfo(torch.float16).max:
            raise NotImplementedError
        operators = torch.ops.quantized
        self._weight = operators.linear_prepack_fp16(weight.float(), None if bias is None else bias.float())
        self._product: Any = operators.linear_dynamic_fp16.default

    def __call__(self, rows: Tensor) -> Tensor:
        """See `Linear`."""
        product: Tensor = self._product(rows, self._weight)
        return product

    def added_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """See `Linear`."""
        return residual.add_(self(rows))


def times(rows: Float[Tensor, "N X"], matrix: Float[Tensor, "Y X"]) -> Float[Tensor, "N Y"]:
    """The product of rows and matrix^T, for a matrix that is used only once and so is not worth packing.

    For many rows, oneDNN is up to twice as fast as torch's own product, which calls a library tuned for one vendor's
    CPUs.
    """
    if not _multiplies_plain(matrix.dtype):
        return functional.linear(rows, matrix)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")  # noqa: SLF001 - see above
    return product


@functools.cache
def _multiplies_plain(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies unpacked matrices, with the same result as `linear`."""
    if dtype is not torch.float32:
        return False
    rows, matrix = torch.linspace(0, 2, 64).reshape(2, 32)[:, 16:], torch.linspace(-1, 1, 96).reshape(16, 6).t()
    try:
        product = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")  # noqa: SLF001
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return False
    return torch.allclose(product, functional.linear(rows, matrix), atol=1e-5)


Maker = Callable[[Tensor, Tensor | None, torch.dtype], Linear]


def pack(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Linear:
    """A linear layer in the fastest form on this CPU, with weights in `dtype` or in a more precise dtype."""
    two_layouts = dtype is torch.float32 and weight.numel() <= SECOND_LAYOUT_WEIGHTS and second_layout_pays()
    makers: tuple[Maker, ...] = (FbgemmLinear, *((TwoLayoutLinear,) if two_layouts else ()), OneDnnLinear)
    for maker in makers:
        if works(maker, dtype):
            try:
                return maker(weight, bias, dtype)
            except NotImplementedError:
                continue
    # Without packed weights, float16 arithmetic on a CPU costs more time than the smaller weights save, so float32 is
    # used instead of float16.
    return pack(weight, bias, torch.float32) if dtype is torch.float16 else PublicLinear(weight, bias, dtype)


@functools.cache
def works(maker: Maker, dtype: torch.dtype) -> bool:
    """Whether the operators of `maker` exist, run on this CPU in this dtype, and give the same result as `linear`."""
    if dtype not in (torch.float32, *HALF):
        return False
    weight, bias, rows = torch.linspace(-1, 1, 96).reshape(6, 16), torch.arange(6.0), torch.linspace(0, 2, 64)
    # As in a model, the rows are a slice of wider rows, so they are not contiguous.
    rows = rows.reshape(2, 32)[:, 16:]
    expected = functional.linear(rows, weight, bias)
    tolerance = 1e-5 if dtype is torch.float32 else 0.2
    try:
        layer = maker(weight, bias, dtype)
        errors = [layer(rows).float() - expected, layer.added_to(torch.ones(2, 6), rows) - 1 - expected]
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return False
    return all(float(error.abs().max()) <= tolerance for error in errors)


@functools.cache
def bfloat16_pays() -> bool:
    """Whether matrix products are faster in bfloat16 than in float32; the trial takes 0.1 s, once per process."""
    half_s, single_s = _trial_s((pack, torch.bfloat16), (pack, torch.float32), TRIAL_ROWS)
    return half_s < single_s


@functools.cache
def second_layout_pays() -> bool:
    """Whether `TwoLayoutLinear` is faster than `OneDnnLinear` for one row on one thread; the trial takes 0.1 s, once
    per process.
    """
    if not (works(TwoLayoutLinear, torch.float32) and works(OneDnnLinear, torch.float32)):
        return False
    two_layouts_s, packed_s = _trial_s((TwoLayoutLinear, torch.float32), (OneDnnLinear, torch.float32), 1)
    return two_layouts_s < SECOND_LAYOUT_GAIN * packed_s


@torch.inference_mode()
def _trial_s(one: tuple[Maker, torch.dtype], other: tuple[Maker, torch.dtype], rows: int) -> tuple[float, float]:
    """Shortest times of products of `rows` rows with two kinds of layers, in seconds."""
    threads = torch.get_num_threads()
    # Only one thread is used: on busy cores, two threads would wait for each other and make the trial meaningless.
    torch.set_num_threads(1)
    try:
        layers = [_layers(*kind) for kind in (one, other)]
        times = [[_seconds(each, rows) for each in layers] for _ in range(TRIAL_REPEATS)]
    finally:
        torch.set_num_threads(threads)
    first_s, second_s = (min(column) for column in zip(*times, strict=True))
    return first_s, second_s


def _layers(make: Maker, dtype: torch.dtype) -> list[Linear]:
    return [make(torch.full((TRIAL_WIDTH, TRIAL_WIDTH), 0.01), None, dtype) for _ in range(TRIAL_LAYERS)]


def _seconds(layers: list[Linear], count: int) -> float:
    rows = torch.ones(count, TRIAL_WIDTH)
    start = time.perf_counter()
    for layer in layers:
        layer(rows)
    return time.perf_counter() - start
