"""The kernel of norm, product and activation, and passes of models whose layers use kernels, beside plain functions."""

from collections.abc import Iterator
from functools import partial, reduce

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.forward.families.model import Activation, LayerNorm, RmsNorm, gated_silu, normed
from decoder.forward.families.native import NativeModel
from decoder.forward.linear import Linear
from decoder.session.cuda_graph.kernel_trial import layer_kernels
from decoder.session.cuda_graph.kernels import normed_product
from tests.decoder.family_models import made, static_of
from tests.triton_tools import interpreted, recorded, tree_mask

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3}
"""Largest error, as a share of the largest number of the plain functions; these round the normalised rows, and the
product before the activation."""
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
GATED = Activation(gated_silu, gated_silu)
Kind = type[LayerNorm | RmsNorm]
KINDS = pytest.mark.parametrize(
    ("kind", "activation"), [(RmsNorm, None), (RmsNorm, GATED), (LayerNorm, None)], ids=["plain", "gated", "LayerNorm"]
)
H200 = 132
"""Number of multiprocessors of an H200."""


def drawn(
    count: int,
    size: int,
    width: int,
    dtype: torch.dtype,
    kind: Kind = RmsNorm,
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


@KINDS
@pytest.mark.parametrize(("width", "multiprocessors"), [(98, 1), (200, 4), (130, 6)])
def test_many_columns_of_a_program_are_those_of_norm_product_and_activation(
    width: int, multiprocessors: int, kind: Kind, activation: Activation | None
) -> None:
    check(*drawn(50, 200, width, torch.float16, kind, biased=True), activation, multiprocessors)


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
@KINDS
@pytest.mark.parametrize("biased", [False, True], ids=["without biases", "biases"])
@pytest.mark.parametrize(("count", "size", "width"), [(1, 32, 32), (3, 130, 50), (17, 64, 2), (64, 200, 98)])
def test_columns_are_those_of_norm_product_and_activation(
    count: int, size: int, width: int, dtype: torch.dtype, kind: Kind, activation: Activation | None, *, biased: bool
) -> None:
    check(*drawn(count, size, width, dtype, kind, biased=biased, seed=count), activation)


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


# Passes of whole models whose layers use kernels


@torch.no_grad()
def passes(form: NativeModel) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and store after a text of 12 tokens, and after a tree of 5 nodes behind it."""
    store = form.new_store(32)
    above = torch.tensor([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]])
    for first, seen, positions in (
        (0, torch.ones((12, 12), dtype=torch.bool).tril(), torch.arange(12)),
        (12, above > 0, 12 + torch.tensor([0, 1, 1, 2, 3])),
    ):
        places = first + torch.arange(len(positions))
        bias = tree_mask(first, seen, 24, store.dtype)
        logits = form.computed(store, places * 7 % 90, form.rotation(store, positions), places, bias)
        yield logits, store.clone()


ATTENTION, PRODUCTS = ["attention"], ["norms and products"]


@pytest.mark.parametrize(
    ("parts", "name", "dtype"),
    [
        (ATTENTION, "neox", torch.float16),
        (ATTENTION, "neox, all rotated", torch.float32),
        (ATTENTION, "neox, one after the other", torch.float32),
        (ATTENTION, "neox, odd heads", torch.float32),
        (ATTENTION, "llama", torch.float16),
        (ATTENTION, "llama, one head for all", torch.float32),
        (ATTENTION, "qwen2, windows in half of its layers", torch.float32),
        (PRODUCTS, "neox", torch.float32),
        (ATTENTION + PRODUCTS, "neox without biases, tied", torch.float16),
        (PRODUCTS, "llama", torch.float16),
        (PRODUCTS, "llama with biases and wide heads", torch.float32),
        (ATTENTION + PRODUCTS, "llama", torch.float32),
        (ATTENTION + PRODUCTS, "mistral, windows of 8", torch.float32),
    ],
    ids=str,
)
def test_text_and_tree_have_the_logits_and_the_store_of_the_plain_layers(
    parts: list[str], name: str, dtype: torch.dtype
) -> None:
    form = static_of(made(name, dtype))
    other = reduce(lambda before, part: layer_kernels()[part](before), parts, form)
    assert other is not form
    with interpreted():
        found = list(passes(other))
    tolerance = 1e-4 if dtype is torch.float32 else 3e-2
    for each in zip(found, passes(form), strict=True):
        for own, right in zip(*each, strict=True):
            torch.testing.assert_close(own, right, rtol=0, atol=tolerance * float(right.abs().max()))
