"""Passes of whole models whose layers use kernels, run by Triton's interpreter, beside passes by plain operators."""

from collections.abc import Iterator
from functools import reduce

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.forward.families.native import NativeModel
from decoder.forward.static.static_forward import visibility
from decoder.session.cuda_graph.kernel_trial import layer_kernels
from tests.decoder.family_models import made, static_of
from tests.triton_tools import interpreted

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

TOLERANCES = {torch.float32: 1e-4, torch.float16: 3e-2}
"""Largest error, as a share of the largest number of the plain layers."""


@torch.no_grad()
def passes(form: NativeModel) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and store after a text of 12 tokens, and after a tree of 5 nodes behind it."""
    store = form.new_store(32)
    above = torch.tensor([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]])
    depths = torch.tensor([0, 1, 1, 2, 3])
    for first, seen, positions in (
        (0, torch.ones((12, 12), dtype=torch.bool).tril(), torch.arange(12)),
        (12, above > 0, 12 + depths),
    ):
        places = first + torch.arange(len(positions))
        bias = visibility(torch.tensor(first), seen, 24, store.dtype)
        logits = form.computed(store, places * 7 % 90, form.rotation(store, positions), places, bias)
        yield logits, store.clone()


@pytest.mark.parametrize(
    ("parts", "name", "dtype"),
    [
        (["attention"], "neox", torch.float16),
        (["attention"], "neox, all rotated", torch.float32),
        (["attention"], "neox, one after the other", torch.float32),
        (["attention"], "neox, odd heads", torch.float32),
        (["attention"], "llama", torch.float16),
        (["attention"], "llama, one head for all", torch.float32),
        (["attention"], "qwen2, windows in half of its layers", torch.float32),
        (["norms and products"], "neox", torch.float32),
        (["attention", "norms and products"], "neox without biases, tied", torch.float16),
        (["norms and products"], "llama", torch.float16),
        (["norms and products"], "llama with biases and wide heads", torch.float32),
        (["attention", "norms and products"], "llama", torch.float32),
        (["attention", "norms and products"], "mistral, windows of 8", torch.float32),
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
    tolerance = TOLERANCES[dtype]
    for (logits, store), (right, rightly_kept) in zip(found, passes(form), strict=True):
        torch.testing.assert_close(logits, right, rtol=0, atol=tolerance * float(right.abs().max()))
        torch.testing.assert_close(store, rightly_kept, rtol=0, atol=tolerance * float(rightly_kept.abs().max()))
