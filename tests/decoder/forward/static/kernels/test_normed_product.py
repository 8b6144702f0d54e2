"""The kernel of norm, product and activation, run by Triton's interpreter and compiled for GPUs, beside the plain
functions.
"""

from functools import partial

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.forward.families.model import Activation, LayerNorm, RmsNorm, gated_silu, normed
from decoder.forward.linear import Linear
from decoder.forward.static.kernels import normed_product
from tests.decoder.family_models import made, static_of
from tests.triton_tools import Figures, Launch, assert_within, interpreted, recorded

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3}
"""Largest error, as a share of the largest number of the plain functions; these round the normalised rows, and the
product before the activation."""
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
GATED = Activation(gated_silu, gated_silu)
H200 = 132
"""Number of multiprocessors of an H200."""


def drawn(
    count: int,
    size: int,
    width: int,
    dtype: torch.dtype,
    kind: type[LayerNorm | RmsNorm] = RmsNorm,
    *,
    biased: bool = False,
    seed: int = 0,
) -> tuple[Tensor, LayerNorm | RmsNorm, Linear]:
    """Random rows, their norm, and a product with `width` columns."""
    normal = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
    linear = Linear(normal(width, size), normal(width) if biased else None, dtype)
    # Rows of different sizes have different scales; some have a mean.
    rows = (normal(count, size) + torch.arange(count)[:, None] % 3) * torch.linspace(0.1, 9, count)[:, None]
    return rows.to(dtype), kind((size,), 1e-2), linear


def check(
    rows: Tensor, norm: LayerNorm | RmsNorm, linear: Linear, activation: Activation | None, multiprocessors: int = H200
) -> None:
    """Kernel and plain functions give the same columns, and neither changes the rows."""
    before = rows.clone()
    with interpreted():
        found = normed_product.normed_product(multiprocessors, rows, norm, linear, activation)
    right = normed(rows.float(), norm, Linear(linear.weight, linear.bias, torch.float32), activation)
    torch.testing.assert_close(
        found, right.to(rows.dtype), rtol=0, atol=TOLERANCES[rows.dtype] * float(right.abs().max())
    )
    assert torch.equal(rows, before)


@pytest.mark.parametrize("activation", [None, GATED], ids=["plain", "gated"])
@pytest.mark.parametrize(("width", "multiprocessors"), [(98, 1), (200, 4), (130, 6)])
def test_many_columns_of_a_program_are_those_of_norm_product_and_activation(
    width: int, multiprocessors: int, activation: Activation | None
) -> None:
    rows, norm, linear = drawn(50, 200, width, torch.float16, biased=True)
    check(rows, norm, linear, activation, multiprocessors)
    if activation is None:
        check(rows, LayerNorm((200,), 1e-2), linear, None, multiprocessors)


@pytest.mark.parametrize(
    ("tile", "width", "gated", "columns"),
    [
        pytest.param(64, 17920, False, 128, id="Pythia 2.8B"),
        pytest.param(64, 6144, False, 64, id="Llama 8B, attention"),
        pytest.param(64, 14336, True, 64, id="Llama 8B, MLP"),
        pytest.param(64, 3584, False, 32, id="Pythia 70M"),
        pytest.param(32, 17920, False, 32, id="32 rows"),
        pytest.param(16, 14336, True, 32, id="16 rows, gated"),
    ],
)
def test_rows_are_read_at_most_once_for_each_byte_of_a_large_model_s_weights(
    tile: int, width: int, columns: int, *, gated: bool
) -> None:
    assert normed_product.columns_of(tile, width, H200, torch.float16, gated=gated) == columns
    row_bytes_per_weight_byte = tile / (columns * (1 + gated))
    # 2 where fewer than half of the multiprocessors would have a program of more columns, as in Pythia 70M.
    assert row_bytes_per_weight_byte <= (1 if width > 4096 else 2)


@DTYPES
@pytest.mark.parametrize("activation", [None, GATED], ids=["plain", "gated"])
@pytest.mark.parametrize("biased", [False, True], ids=["without biases", "biases"])
@pytest.mark.parametrize(("count", "size", "width"), [(1, 32, 32), (3, 130, 50), (17, 64, 2), (64, 200, 98)])
def test_columns_are_those_of_norm_product_and_activation(
    count: int, size: int, width: int, dtype: torch.dtype, activation: Activation | None, *, biased: bool
) -> None:
    check(*drawn(count, size, width, dtype, biased=biased, seed=count), activation)


@DTYPES
@pytest.mark.parametrize("biased", [False, True], ids=["without biases", "biases"])
@pytest.mark.parametrize(("count", "size", "width"), [(1, 32, 32), (3, 130, 50), (17, 64, 2), (64, 200, 98)])
def test_a_layer_norm_subtracts_the_mean(
    count: int, size: int, width: int, dtype: torch.dtype, *, biased: bool
) -> None:
    check(*drawn(count, size, width, dtype, LayerNorm, biased=biased, seed=count), None)


def test_a_row_of_zeros_gives_the_bias_alone() -> None:
    rows, norm, linear = drawn(2, 40, 6, torch.float32, biased=True)
    rows[1] = 0
    with interpreted():
        found = normed_product.normed_product(H200, rows, norm, linear, None)
    assert linear.bias is not None
    torch.testing.assert_close(found[1], linear.bias)


def test_a_row_of_equal_values_has_finite_columns_after_a_layer_norm() -> None:
    _, _, linear = drawn(1, 200, 40, torch.float32, LayerNorm)
    rows = torch.linspace(100, 300, 32)[:, None].expand(-1, 200).contiguous()
    with interpreted():
        found = normed_product.normed_product(H200, rows, LayerNorm((200,), 1e-5), linear, None)
    assert bool(found.isfinite().all())


def test_a_row_whose_unscaled_product_overflows_half_precision_has_finite_columns() -> None:
    rows, norm, linear = drawn(2, 256, 40, torch.float16)
    rows.mul_(1000)
    check(rows, norm, linear, None)


def test_rows_with_a_stride_are_read_where_they_are() -> None:
    rows, norm, linear = drawn(5, 48, 30, torch.float32)
    check(torch.cat((rows, rows * 7), 1)[:, :48], norm, linear, GATED)


def test_many_rows_are_computed_by_the_plain_functions() -> None:
    rows, norm, linear = drawn(normed_product.MOST_ROWS + 1, 16, 8, torch.float32)
    with recorded() as launches:
        found = normed_product.normed_product(H200, rows, norm, linear, GATED)
    assert not launches
    assert torch.equal(found, normed(rows, norm, linear, GATED))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("neox", torch.float64), ("neox, one after the other", torch.float32), ("llama", torch.float64)],
    ids=str,
)
def test_a_model_whose_products_the_kernel_cannot_compute_keeps_its_form(name: str, dtype: torch.dtype) -> None:
    form = static_of(made(name, dtype))
    assert normed_product.with_kernels(form) is form


def launch(
    count: int, width: int, dtype: torch.dtype, kind: type[LayerNorm | RmsNorm], activation: Activation | None
) -> Launch:
    """The launch of a product with `width` columns of weights."""
    with recorded() as found:
        normed_product.normed_product(H200, *drawn(count, 512, width, dtype, kind), activation)
    (only,) = found
    return only


@pytest.mark.parametrize(
    ("capability", "count", "width", "dtype", "most"),
    [
        (80, 64, 17920, torch.bfloat16, Figures(registers=255, stack=0, shared=72 << 10)),
        (90, 64, 17920, torch.bfloat16, Figures(registers=128, stack=0, shared=88 << 10)),
        (90, 64, 6144, torch.bfloat16, Figures(registers=128, stack=0, shared=112 << 10)),
        (90, 64, 3072, torch.bfloat16, Figures(registers=144, stack=0, shared=112 << 10)),
        (90, 16, 3072, torch.bfloat16, Figures(registers=64, stack=0, shared=60 << 10)),
        (90, 64, 3072, torch.float32, Figures(registers=168, stack=0, shared=48 << 10)),
        (100, 64, 17920, torch.bfloat16, Figures(registers=168, stack=0, shared=100 << 10)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("kind", "activation"),
    [(LayerNorm, None), (RmsNorm, None), (RmsNorm, GATED)],
    ids=["LayerNorm", "RmsNorm", "gated"],
)
def test_the_kernel_spills_no_register(
    capability: int,
    count: int,
    width: int,
    dtype: torch.dtype,
    most: Figures,
    kind: type[LayerNorm | RmsNorm],
    activation: Activation | None,
) -> None:
    assert_within(launch(count, width, dtype, kind, activation).figures(capability), most, capability)
