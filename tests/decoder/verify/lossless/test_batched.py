"""Batched verification equals the pure functions: probabilities to 1e-5, and the same path for one generator."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.drawn_drafter import draw_tree
from decoder.verify.lossless import batched, bottom_up, specinfer, spectr
from decoder.verify.lossless.batched import PlannedSolver, block_stops, draw, race, traversal_stops
from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree, draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.rows import Row, Rows, ratio, residual
from decoder.verify.lossless.verifiers import VERIFIERS
from tests.decoder.verify.lossless.row_by_row import VERIFY

VOCABULARY, NEAR = 32_000, 1e-5
TREE, CHAIN = DelayedTree(4, 1, 2), DelayedTree(1, 0, 5)


@dataclass(frozen=True, eq=False)
class Case:
    """A sampled tree with its rows, in float32 and for the pure functions."""

    tree: DrawnTree
    target_probs: Tensor
    draft_probs: Tensor

    @property
    def pure(self) -> tuple[Rows, Rows]:
        return self.target_probs.double().numpy(), self.draft_probs.double().numpy()

    @property
    def given(self) -> tuple[DrawnTree, Tensor, Tensor]:
        return self.tree, self.target_probs, self.draft_probs

    def inner(self) -> list[int]:
        return [node for node, drawn in enumerate(self.tree.children) if drawn]


@cache
def case(shape: DelayedTree, top_p: float) -> Case:
    """Rows of a large vocabulary; at least two draws of the branching node have the same token."""
    noise = torch.Generator().manual_seed(5)

    def logits(rows: int) -> Tensor:
        return torch.randn(rows, VOCABULARY, generator=noise) * 4

    shared = logits(1)
    trees = (
        draw_tree(shape, 3, lambda _, nodes: probs(shared + 0.08 * logits(len(nodes)), top_p), PhiloxGenerator(seed, 1))
        for seed in range(1000)
    )
    tree = next(each for each in trees if shape is CHAIN or len(each) < 1 + shape.most_nodes)
    target_probs = probs(shared + 0.08 * logits(len(tree)), top_p)
    return Case(drawn_tree(tree), target_probs, draft_rows(tree, target_probs))


def probs(logits: Tensor, top_p: float) -> Tensor:
    """Distributions truncated to the fewest tokens that reach `top_p`."""
    found = logits.softmax(-1)
    ranked, order = found.sort(-1, descending=True)
    kept = (ranked.cumsum(-1) - ranked < top_p) * ranked
    return torch.zeros_like(found).scatter(-1, order, kept / kept.sum(-1, keepdim=True))


ALL_ROWS = pytest.mark.parametrize("top_p", [1.0, 0.9])
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


Expected = tuple[list[list[float]], Row]
"""Probability of each draw in each attempt, and the residual."""


def pure_naive(target: Row, draft: Row, drawn: list[int]) -> Expected:
    return [[ratio(target[drawn[0]], draft[drawn[0]])]], residual(target, draft)


def pure_spectr(target: Row, draft: Row, drawn: list[int]) -> Expected:
    division = spectr.divide(target, draft, len(drawn))
    return [[division.probability(target[token], draft[token]) for token in drawn]], division.residual


def pure_specinfer(target: Row, draft: Row, drawn: list[int]) -> Expected:
    *rests, last = specinfer.residuals(target, draft, len(drawn))
    return [[ratio(rest[token], draft[token]) for token in drawn] for rest in rests], last


@ALL_ROWS
@pytest.mark.parametrize(
    ("solver", "pure"),
    [
        (batched.NAIVE, pure_naive),
        (batched.SPECTR, pure_spectr),
        (batched.SPECINFER, pure_specinfer),
        (batched.NSS, None),
    ],
    ids=["naive", "spectr", "specinfer", "nss"],
)
def test_the_plan_of_each_node_is_the_pure_one(
    solver: PlannedSolver, pure: Callable[[Row, Row, list[int]], Expected] | None, top_p: float
) -> None:
    given = case(TREE, top_p)
    plan, (target_probs, draft_probs) = solver.plan(*given.given), given.pure
    assert plan.residual.sum(-1) == pytest.approx(np.ones(len(given.tree)), abs=1e-4)
    judged = given.inner() if pure else []
    for node in judged:
        assert pure
        probabilities, rest = pure(target_probs[node], draft_probs[node], given.tree.drawn(node))
        found = plan.probabilities[node, : len(probabilities), : len(probabilities[0])].numpy()
        assert found == pytest.approx(np.array(probabilities), abs=NEAR)
        np.testing.assert_allclose(plan.residual[node].numpy(), rest, rtol=0, atol=NEAR)
    others = sorted({*range(len(given.tree))} - {*judged})
    assert torch.allclose(plan.residual[others], given.target_probs[others], atol=1e-7)
    assert pure or plan.probabilities.numel() == 0


def assert_same_stops(found: list[Stop], expected: list[Stop], given: Case) -> None:
    target_probs, draft_probs = given.pure
    assert [stop.node for stop in found] == [stop.node for stop in expected]
    assert [stop.probability for stop in found] == pytest.approx([stop.probability for stop in expected], abs=NEAR)
    for one, other in zip(found, expected, strict=True):
        rows = [residual(target_probs[one.node], draft_probs[one.node], stop.removed) for stop in (one, other)]
        np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=NEAR)


@ALL_ROWS
def test_stops_of_traversal_and_block_are_the_pure_ones(top_p: float) -> None:
    tree, chain = case(TREE, top_p), case(CHAIN, top_p)
    assert_same_stops(traversal_stops(*tree.given), bottom_up.traversal_stops(tree.tree, *tree.pure), tree)
    assert_same_stops(block_stops(*chain.given), bottom_up.block_stops(chain.tree, *chain.pure), chain)


@pytest.mark.parametrize("name", VERIFIERS)
def test_the_same_coins_bring_the_same_walk(name: str) -> None:
    given = case(CHAIN if name == "block" else TREE, 0.9)
    for seed in range(12):
        found = VERIFIERS[name].on_device(*given.given, PhiloxGenerator(seed))
        assert found == VERIFIERS[name].on_device(*given.given, PhiloxGenerator(seed))
        assert found == VERIFY[name](given.tree, *given.pure, PhiloxGenerator(seed))


def test_a_draw_of_target_probability_zero_prunes() -> None:
    given = case(CHAIN, 0.9)
    target_probs = given.target_probs.clone()
    target_probs[1, given.tree.tokens[2]] = 0
    stops = block_stops(given.tree, target_probs, given.draft_probs)
    assert [stop.probability for stop in stops[:4]] == [0, 0, 0, 0]
    found = traversal_stops(given.tree, target_probs, given.draft_probs)
    assert {stop.node for stop in found} == {0, 1}


def test_a_race_follows_its_rows() -> None:
    rows = torch.tensor([[0.1, 0.0, 0.2, 0.7]]).repeat(4000, 1)
    waits = torch.empty(4000, 4, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(3))
    counts = race(rows, waits).bincount(minlength=4) / 4000
    assert counts.tolist() == pytest.approx([0.1, 0.0, 0.2, 0.7], abs=0.03)  # 4 standard deviations


def test_who_waits_no_time_does_not_win_with_probability_zero() -> None:
    rows, waits = torch.tensor([[0.0, 0.5, 0.5]]), torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64)
    assert race(rows, waits).tolist() == [2]


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", VERIFIERS)
def test_a_device_brings_the_numbers_of_the_host(name: str) -> None:
    given = case(CHAIN if name == "block" else TREE, 0.9)
    on_device = given.tree, given.target_probs.cuda(), given.draft_probs.cuda()
    for seed in range(12):
        found = VERIFIERS[name].on_device(*on_device, PhiloxGenerator(seed))
        assert found == VERIFIERS[name].on_device(*on_device, PhiloxGenerator(seed))
    for solver in (batched.NSS, batched.NAIVE, batched.SPECTR, batched.SPECINFER):
        there, here = solver.plan(*on_device), solver.plan(*given.given)
        assert torch.allclose(there.probabilities.cpu(), here.probabilities, atol=NEAR)
        assert torch.allclose(there.residual.cpu(), here.residual, atol=NEAR)
    assert_same_stops(traversal_stops(*on_device), traversal_stops(*given.given), given)


@gpu
@pytest.mark.gpu
def test_draws_on_a_device_follow_their_rows() -> None:
    rows = torch.tensor([[0.1, 0.0, 0.2, 0.7]], device="cuda").repeat(20_000, 1)
    counts = draw(rows, PhiloxGenerator(3)).bincount(minlength=4) / 20_000
    assert counts.tolist() == pytest.approx([0.1, 0.0, 0.2, 0.7], abs=0.014)  # 4 standard deviations
    assert torch.equal(draw(rows, PhiloxGenerator(3)), draw(rows, PhiloxGenerator(3)))
