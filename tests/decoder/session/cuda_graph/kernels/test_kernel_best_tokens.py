"""The kernels find the best tokens that a stable sort finds, with the plain function's log-probabilities."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.methods.dynatree import DynaTree
from decoder.session.cuda_graph import draft
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftLayout
from decoder.session.cuda_graph.kernels import best_tokens
from decoder.session.cuda_graph.static_shapes import Shape
from decoder.tree_rules import Growth

pytestmark = pytest.mark.usefixtures("by_interpreter")
CPU = torch.device("cpu")
ROUNDING = 2e-6
"""Largest error of a log-probability of at most this many units, as a share of the largest logit plus 1."""
VOCABULARIES = (50277, 151643, 32003, 151936, 50304, 128256)
WIDER = 5
"""Number of columns beyond the vocabulary, as the models' vocabularies may have."""


def check(logits: Tensor, count: int, breadths: Growth[Tensor] | None = None) -> Tensor:
    """Compares the kernels with the plain function, and the tokens with a stable sort; returns the tokens."""
    rows, vocabulary = logits.shape
    layout = DraftLayout(Shape(count, (1, rows), best=True, even=breadths is None), vocabulary, CPU)
    paths = -torch.rand(rows, dtype=torch.float64)
    (lines, logprobs), (right_lines, right) = (
        (torch.zeros((3, rows * count), dtype=torch.int64), torch.zeros(rows * count)) for _ in range(2)
    )
    best_tokens.add_children(logits, layout, breadths, paths, lines, logprobs)
    draft.add_children(logits, layout, breadths, paths, right_lines, right)
    tokens = lines[0].view(rows, count)
    assert torch.equal(tokens, logits.float().sort(dim=1, stable=True, descending=True).indices[:, :count])
    far = ROUNDING * (1 + float(logits[logits.isfinite()].abs().max()))
    assert torch.allclose(logprobs, right, rtol=0, atol=far, equal_nan=True)
    own = logits.log_softmax(-1, torch.float32).gather(1, tokens).flatten()
    assert torch.allclose(logprobs, own, rtol=0, atol=far, equal_nan=True)
    ends, right_ends = (each[1].view(torch.float64) for each in (lines, right_lines))
    assert torch.allclose(ends, right_ends, rtol=0, atol=far, equal_nan=True)
    assert not lines[2].any()
    return tokens


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("seed", range(6))
def test_rows_of_any_size_have_the_tokens_of_a_stable_sort(
    seed: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_tokens, "PART", 16)
    random = torch.Generator().manual_seed(seed)
    rows, vocabulary = (int(torch.randint(1, most, (), generator=random)) for most in (4, 90))
    logits = torch.randn((rows, vocabulary + WIDER), generator=random).to(dtype)[:, :vocabulary]
    check(logits, min(vocabulary, 1 + seed))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_of_equal_logits_the_lower_ids_come_first_in_one_part_and_over_several(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_tokens, "PART", 16)
    random = torch.Generator().manual_seed(count)
    values = torch.tensor([-torch.inf, -1.0, 0.0, -0.0, 2.0])
    check(values[torch.randint(0, len(values), (3, 50), generator=random)], count)
    assert check(torch.zeros(1, 40), count).tolist() == [list(range(count))]


def test_impossible_tokens_are_chosen_once_each_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_tokens, "PART", 16)
    logits = torch.full((2, 40), -torch.inf)
    logits[0, [20, 37]] = torch.tensor([1.0, 2.0])
    logits[1, 3] = 0.5
    assert check(logits, 4).tolist() == [[37, 20, 0, 1], [3, 0, 1, 2]]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_row_without_possible_tokens_has_no_probabilities() -> None:
    logits, layout = torch.full((1, 40), -torch.inf), DraftLayout(Shape(2, (1,), best=True, even=True), 40, CPU)
    lines, logprobs = torch.zeros((3, 2), dtype=torch.int64), torch.zeros(2)
    best_tokens.add_children(logits, layout, None, torch.zeros(1, dtype=torch.float64), lines, logprobs)
    assert lines[0].tolist() == [0, 1]
    assert logprobs.isnan().all()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 19, 39])
def test_the_first_log_probability_of_a_row_with_a_broken_logit_is_none(
    value: float, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_tokens, "PART", 16)
    logits, layout = torch.arange(40.0)[None].clone(), DraftLayout(Shape(2, (1,), best=True, even=True), 40, CPU)
    logits[0, place] = value
    for add_children in (best_tokens.add_children, draft.add_children):
        lines, logprobs = torch.zeros((3, 2), dtype=torch.int64), torch.zeros(2)
        add_children(logits, layout, None, torch.zeros(1, dtype=torch.float64), lines, logprobs)
        assert logprobs[0].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_large_vocabularies_are_searched_to_their_ends(
    vocabulary: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_tokens, "PART", 16384)
    logits = torch.randn((2, vocabulary + WIDER), generator=torch.Generator().manual_seed(1)).to(dtype)
    logits[0, [vocabulary - 1, 7, vocabulary]] = 60.0
    assert check(logits[:, :vocabulary], 4)[0, :2].tolist() == [7, vocabulary - 1]


def test_parts_of_the_usual_size_are_merged() -> None:
    check(torch.randn((1, 5000), generator=torch.Generator().manual_seed(2)), 8)


def test_each_row_has_as_many_children_as_its_confidence_asks_for() -> None:
    state = DeviceState(CPU, 600)
    state.begin([1, 2], DynaTree(branching=(1, 2, 3), tau_h=0.8, tau_l=0.4).rule())
    layout = DraftLayout(Shape(3, (1,), best=True), 30, CPU)
    growth = state.rule.logarithmic()
    ranks = torch.arange(layout.children) < state.rule.breadths[:, None]
    narrow, middle, wide = torch.where(ranks, state.certain, state.impossible).unbind()
    breadths = Growth(**{**vars(growth), "narrow": narrow, "middle": middle, "wide": wide})
    logits = torch.zeros(4, 30)
    logits[:, 4] = torch.tensor([9.0, 3.5, 1.0, 5.0])
    check(logits, 3, breadths)
