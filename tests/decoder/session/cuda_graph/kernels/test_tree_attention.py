"""The attention kernels, run by Triton's interpreter and compiled for GPUs, beside the plain functions."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")


from decoder.forward.families.model import Heads, LayerSlots, Pass, attended, gelu
from decoder.session.cuda_graph.kernels import tree_attention
from decoder.session.cuda_graph.kernels.tree_attention import Division
from decoder.system.device import Multiprocessors
from tests.triton_tools import interpreted, tree_mask

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3}
"""Largest error, as a share of the largest number of the plain function."""
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
BEYOND = 8
"""Slots at the end of a store that no row sees."""
PYTHIA, LLAMA = Heads(32, 1, 80, 20), Heads(8, 4, 128, 128)
"""Heads of Pythia 2.8B and of Llama 8B."""
H200 = Multiprocessors(132, 9)


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
        return Pass(self.rotation[:, None, None], places, (read[0],), (read[1],), [self.bias])

    def plain(self) -> tuple[Tensor, Tensor]:
        """Activated columns and attention, and the store, by the plain functions."""
        product, store = self.product.clone(), self.store.clone()
        attended(product, self.inner, self.heads, self.given(store), 0)
        if self.approximate is not None:
            gelu(product.narrow(1, 0, self.inner), self.approximate)
        return product[:, : self.inner + self.heads.queries], store

    def by_kernels(self) -> tuple[Tensor, Tensor]:
        """The same by the interpreted kernels."""
        product, store = self.product.clone(), self.store.clone()
        with interpreted():
            tree_attention.attend(product, self.inner, self.heads, self.given(store), 0, self.approximate, H200)
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
        tree_mask(text, seen, capacity - BEYOND, dtype),
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
        (Heads(2, 1, 80, 20), 40, 3, 1),
        (Heads(1, 1, 24, 10), 700, 5, 64),
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
    monkeypatch.setattr(tree_attention, "division", lambda *_: Division(16, 16, 1, parts))
    inputs = drawn(Heads(2, 1, 16, 8), 100, 5, 6, torch.float32, seed=parts)
    # Keys of the text have different sizes, so that the parts have different maxima.
    inputs.store[:, 0].mul_(torch.linspace(0, 4, inputs.store.shape[3])[:, None])
    check(replace(inputs, approximate=None))


def test_parts_grow_with_the_text_until_the_device_is_full() -> None:
    def parts(visible: int, multiprocessors: int = 132) -> int:
        return tree_attention.division(PYTHIA, 64, visible, multiprocessors, torch.float16).parts

    assert [parts(visible) for visible in (64, 320, 576, 2112, 4160, 16448)] == [1, 1, 2, 8, 15, 15]
    assert [parts(16448, count) for count in (8, 16, 66, 264, 1000)] == [1, 1, 7, 32, 63]


def test_a_number_of_the_bias_is_added_to_the_score_and_minus_infinity_hides_a_slot() -> None:
    inputs = drawn(Heads(2, 2, 16, 8), 40, 8, 9, torch.float32)
    check(replace(inputs, bias=inputs.bias.masked_fill(inputs.bias < 0, -torch.inf)))
    inputs.bias.add_(torch.randn(inputs.bias.shape, generator=torch.Generator().manual_seed(1)))
    check(inputs)


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
    layer_attention = tree_attention.TreeAttention(approximate, H200)
    layer_attention(product, inputs.inner, inputs.heads, inputs.given(inputs.store.clone()), 0)
    assert torch.equal(product[:, : right.shape[1]], right)
