"""The attention kernels, run by Triton's interpreter and compiled for GPUs, beside the plain functions."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.forward.families.attention import Pass, fused_by_head
from decoder.forward.families.model import Heads, attended, gelu
from decoder.forward.static.kernels import tree_attention
from decoder.forward.static.layers import LayerSlots
from decoder.forward.static.static_forward import visibility
from tests.triton_tools import SHARED_LIMITS, Figures, Launch, assert_within, interpreted, recorded

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3}
"""Largest error, as a share of the largest number of the plain function."""
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
BEYOND = 8
"""Slots at the end of a store that no row sees."""
PYTHIA, LLAMA = Heads(2, 1, 80, 20), Heads(2, 4, 128, 128)


@dataclass(frozen=True)
class Inputs:
    """A layer's product of N tokens after a text and drafted tokens, with the state of their pass."""

    heads: Heads
    inner: int
    product: Tensor
    store: Tensor
    rotation: Tensor
    slots: Tensor
    bias: Tensor
    approximate: str | None = "none"

    def given(self, store: Tensor) -> Pass:
        """The state of a pass that writes to `store`."""
        read = store[0, :, :, : self.bias.shape[1]]
        places = [LayerSlots(store, 0, self.slots)]
        keys, values, biases = read[0].transpose(1, 2), read[1], self.bias
        return Pass(self.rotation[:, None, None], places, (keys,), (values,), [biases], fused_by_head)

    def plain(self) -> tuple[Tensor, Tensor]:
        """Activated columns and attention, and the store, by the plain functions."""
        product, store = self.product.clone(), self.store.clone()
        attended(product, self.inner, product.dtype, self.heads, self.given(store), 0)
        if self.approximate is not None:
            gelu(product.narrow(1, 0, self.inner), self.approximate)
        return product[:, : self.inner + self.heads.queries], store

    def by_kernels(self) -> tuple[Tensor, Tensor]:
        """The same by the interpreted kernels."""
        product, store = self.product.clone(), self.store.clone()
        with interpreted():
            tree_attention.attend(product, self.inner, self.heads, self.given(store), 0, self.approximate)
        return product[:, : self.inner + self.heads.queries], store


def drawn(
    heads: Heads, text: int, drafted: int, tokens: int, dtype: torch.dtype, *, inner: int = 0, seed: int = 0
) -> Inputs:
    """Random inputs: each token sees the text, some of the drafted tokens and of the pass's own, and itself."""
    generator = torch.Generator().manual_seed(seed)
    before, end = text + drafted, text + drafted + tokens

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(dtype)

    angles = torch.rand((tokens, heads.rotated // 2), generator=generator) * 6
    seen = torch.rand((tokens, drafted + tokens), generator=generator) < 0.3
    seen[:, drafted:].logical_or_(torch.eye(tokens, dtype=torch.bool))
    turns = torch.float32 if dtype is torch.bfloat16 else dtype
    capacity = end + 24
    return Inputs(
        heads,
        inner,
        normal(tokens, inner + (heads.groups + 2) * heads.heads * heads.width),
        normal(1, 2, heads.heads, capacity, heads.width),
        torch.complex(angles.cos().to(turns), angles.sin().to(turns)),
        torch.arange(before, end),
        visibility(torch.tensor(text), seen, capacity - BEYOND, dtype),
    )


def check(inputs: Inputs) -> None:
    """Kernels and plain functions give the same columns and the same store."""
    (found, kept), (right, rightly_kept) = inputs.by_kernels(), inputs.plain()
    tolerance = TOLERANCES[right.dtype]
    torch.testing.assert_close(found, right, rtol=0, atol=tolerance * float(right.abs().max()))
    torch.testing.assert_close(kept, rightly_kept, rtol=tolerance / 10, atol=tolerance / 10)


@DTYPES
@pytest.mark.parametrize(
    ("heads", "text", "drafted", "tokens"),
    [
        (Heads(1, 1, 80, 20), 40, 0, 24),
        (Heads(2, 1, 64, 16), 60, 25, 9),
        (Heads(1, 4, 128, 128), 20, 9, 17),
        (Heads(1, 2, 96, 96), 33, 0, 3),
        (Heads(3, 1, 112, 0), 5, 31, 2),
        (Heads(1, 3, 20, 6), 1, 0, 14),
        (PYTHIA, 40, 3, 1),
    ],
    ids=str,
)
def test_attention_and_store_are_those_of_the_plain_function(
    heads: Heads, text: int, drafted: int, tokens: int, dtype: torch.dtype
) -> None:
    check(replace(drawn(heads, text, drafted, tokens, dtype), approximate=None))


@DTYPES
@pytest.mark.parametrize("seed", range(4))
def test_random_shapes_have_the_attention_of_the_plain_function(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)

    def any_of(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (), generator=generator))

    width = 2 * any_of(3, 24)
    heads = Heads(any_of(1, 3), any_of(1, 4), width, 2 * any_of(0, width // 2))
    inputs = drawn(heads, any_of(1, 200), any_of(0, 20), any_of(1, 20), dtype, inner=2 * any_of(1, 30), seed=seed)
    check(inputs)


@DTYPES
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_columns_of_the_mlp_are_activated(approximate: str, dtype: torch.dtype) -> None:
    inputs = drawn(Heads(1, 1, 16, 4), 3, 0, 2, dtype, inner=tree_attention.COLUMNS + 6)
    check(replace(inputs, approximate=approximate, product=inputs.product * 3))


@pytest.mark.parametrize("parts", range(1, 9))
def test_any_number_of_parts_gives_the_same_attention(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_attention, "divided", lambda *_: parts)
    inputs = drawn(Heads(2, 1, 16, 8), 100, 5, 6, torch.float32, seed=parts)
    # Keys of the text have different sizes, so that the parts have different maxima.
    inputs.store[:, 0].mul_(torch.linspace(0, 4, inputs.store.shape[3])[:, None])
    check(replace(inputs, approximate=None))


def test_slots_are_divided_until_the_device_is_full() -> None:
    assert [tree_attention.divided(32, slots) for slots in (64, 256, 384, 4096)] == [1, 2, 3, 3]
    assert [tree_attention.divided(programs, 4096) for programs in (1, 8, 64, 500)] == [32, 15, 1, 1]


def test_a_number_of_the_bias_is_added_to_the_score() -> None:
    inputs = drawn(Heads(2, 2, 16, 8), 40, 8, 9, torch.float32)
    inputs.bias.add_(torch.randn(inputs.bias.shape, generator=torch.Generator().manual_seed(1)))
    check(inputs)


def test_minus_infinity_hides_a_slot() -> None:
    inputs = drawn(Heads(2, 2, 16, 8), 40, 8, 9, torch.float32)
    check(replace(inputs, bias=inputs.bias.masked_fill(inputs.bias < 0, -torch.inf)))


@DTYPES
def test_a_padded_row_sees_slot_0_alone(dtype: torch.dtype) -> None:
    inputs = drawn(Heads(2, 1, 16, 8), 40, 0, 4, dtype)
    inputs.bias[1:3, 1:] = torch.finfo(dtype).min
    found, _ = inputs.by_kernels()
    first = inputs.store[0, 1, :, 0].flatten()
    torch.testing.assert_close(found[1:3], first.expand(2, -1), rtol=1e-3, atol=1e-3)
    check(inputs)


def test_a_row_whose_slot_lies_beyond_the_mask_is_written_and_not_seen() -> None:
    inputs = drawn(Heads(2, 1, 16, 8), 40, 0, 2, torch.float32)
    slots = torch.tensor([inputs.store.shape[3] - 1, 0])
    inputs.bias[:, 1:] = torch.finfo(torch.float32).min
    check(replace(inputs, slots=slots))


def test_slots_after_the_pass_s_own_are_not_read() -> None:
    inputs = drawn(Heads(2, 1, 16, 8), 40, 5, 4, torch.float32)
    inputs.store[:, :, :, 45:] = torch.nan
    found, _ = inputs.by_kernels()
    inputs.store[:, :, :, 45:] = 0
    torch.testing.assert_close(found, inputs.plain()[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("approximate", [None, "tanh"])
def test_a_prompt_s_rows_are_computed_by_the_plain_functions(
    approximate: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_attention, "MOST_ROWS", 4)
    inputs = replace(drawn(Heads(2, 1, 16, 8), 3, 0, 5, torch.float32, inner=8), approximate=approximate)
    right, _ = inputs.plain()
    product = inputs.product.clone()
    layer_attention = tree_attention.TreeAttention(approximate)
    layer_attention(product, inputs.inner, product.dtype, inputs.heads, inputs.given(inputs.store.clone()), 0)
    assert torch.equal(product[:, : right.shape[1]], right)


def launches(heads: Heads, tokens: int, dtype: torch.dtype) -> tuple[Launch, Launch]:
    """The two launches of a layer's attention."""
    inputs = drawn(heads, 256 - tokens, 0, tokens, dtype, inner=2048)
    with recorded() as found:
        tree_attention.attend(inputs.product, inputs.inner, heads, inputs.given(inputs.store), 0, inputs.approximate)
    attention, merge = found
    return attention, merge


@pytest.mark.parametrize(
    ("capability", "heads", "dtype", "most"),
    [
        (80, PYTHIA, torch.float16, Figures(registers=255, stack=0, shared=40 << 10)),
        (90, PYTHIA, torch.float16, Figures(registers=192, stack=0, shared=40 << 10)),
        (90, LLAMA, torch.bfloat16, Figures(registers=192, stack=0, shared=40 << 10)),
        (90, PYTHIA, torch.float32, Figures(registers=192, stack=0, shared=40 << 10)),
        (100, PYTHIA, torch.float16, Figures(registers=128, stack=0, shared=40 << 10)),
    ],
    ids=str,
)
def test_the_largest_tile_spills_no_register(capability: int, heads: Heads, dtype: torch.dtype, most: Figures) -> None:
    attention, _ = launches(heads, 64, dtype)
    assert_within(attention.figures(capability), most, capability)


@pytest.mark.parametrize("capability", SHARED_LIMITS)
def test_the_kernels_of_a_single_row_need_little(capability: int) -> None:
    attention, merge = launches(PYTHIA, 1, torch.float16)
    assert_within(attention.figures(capability), Figures(128, 0, 28 << 10), capability)
    assert_within(merge.figures(capability), Figures(40, 0, 4 << 10), capability)
