"""Statistics of sampled rounds, and names of verifiers."""

import math

import numpy as np
import pytest
import torch

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.drawn_drafter import draw_tree
from decoder.errors import ConfigError
from decoder.verify.lossless.drawn_tree import draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import SOLVERS, VERIFIERS, acceptance_bound, tree_statistics
from decoder.verify.names import VERIFIER_NAMES, Drafting, require_lossless
from decoder.verify.verifier import token_statistics

ROWS = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]])
DRAFT = torch.tensor([0.4, 0.4, 0.2])


def test_surprise_and_top1_are_what_their_definitions_say() -> None:
    found = token_statistics(ROWS, [1, 0])
    entropies = [1.5 * math.log(2), -0.1 * math.log(0.1) - 0.9 * math.log(0.9)]
    assert found.surprise == pytest.approx(math.log(4) + math.log(10) - sum(entropies))
    squares = [0.5 * math.log(2) ** 2 + 0.5 * math.log(4) ** 2, 0.1 * math.log(0.1) ** 2 + 0.9 * math.log(0.9) ** 2]
    assert found.surprise_variance == pytest.approx(sum(squares) - sum(each**2 for each in entropies))
    assert found.top1 == pytest.approx(-0.5 - 0.9)
    assert found.top1_variance == pytest.approx(0.25 + 0.09)


def test_a_token_that_cannot_be_is_a_great_surprise() -> None:
    assert token_statistics(ROWS[1:], [2]).surprise > 60


def test_over_draws_both_sums_have_mean_0_and_their_variance() -> None:
    luck = np.random.default_rng(5)
    found = [token_statistics(ROWS[:1], [int(luck.choice(3, p=ROWS[0].numpy()))]) for _ in range(4000)]
    for value, variance in (("surprise", "surprise_variance"), ("top1", "top1_variance")):
        sums = np.array([getattr(each, value) for each in found])
        expected = getattr(found[0], variance)
        assert abs(sums.sum()) < 4 * math.sqrt(len(sums) * expected)
        assert sums.var() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("name", VERIFIER_NAMES)
def test_a_chance_to_be_accepted_falls_with_depth_and_adds_up_to_what_happens(name: str) -> None:
    shape = DelayedTree(1, 0, 3) if name == "block" else DelayedTree(3, 1, 2)
    tree = draw_tree(shape, 7, lambda _, nodes: DRAFT.expand(len(nodes), -1), PhiloxGenerator(1))
    target_probs = ROWS[0].expand(len(tree), -1)
    drawn, rows = drawn_tree(tree), (target_probs, draft_rows(tree, target_probs))
    arrays = [each.double().numpy() for each in rows]
    reach, draws = tree_statistics(name, drawn, arrays[0], arrays[1], [1])
    assert reach[0] == pytest.approx(1)
    assert all(0 <= reach[node] <= reach[parent] + 1e-12 for node, parent in enumerate(tree.parents) if node)
    generator, times = PhiloxGenerator(3, 2), 800
    counts = np.zeros(len(tree))
    for _ in range(times):
        counts[[0, *VERIFIERS[name].on_device(drawn, *rows, generator)[0]]] += 1
    assert np.abs(counts / times - reach).max() < 4.5 * math.sqrt(0.25 / times)
    assert [each.accepted for each in draws[:2]] == [True, False]
    assert draws[0].l1 == pytest.approx(0.3)
    assert draws[0].bound == pytest.approx(acceptance_bound(arrays[0][0], arrays[1][0], 1))


def test_rates_of_a_node_are_the_solver_s_where_it_has_one() -> None:
    tree = draw_tree(DelayedTree(2, 0, 1), 7, lambda _, nodes: DRAFT.expand(len(nodes), -1), PhiloxGenerator(1))
    target_probs = ROWS[0].expand(len(tree), -1)
    arrays = [each.double().numpy() for each in (target_probs, draft_rows(tree, target_probs))]
    rate = {
        name: tree_statistics(name, drawn_tree(tree), arrays[0], arrays[1], [])[1][0].acceptance for name in SOLVERS
    }
    assert rate == {name: each.acceptance_rate(arrays[0][0], arrays[1][0], 2) for name, each in SOLVERS.items()}
    assert tree_statistics("traversal", drawn_tree(tree), arrays[0], arrays[1], [])[1][0].acceptance is None


@pytest.mark.parametrize("name", VERIFIER_NAMES)
def test_every_verifier_takes_one_drawn_path_and_every_one_but_block_several(name: str) -> None:
    for drafting in (Drafting.IID, Drafting.DELAYED, Drafting.SELECTOR):
        require_lossless(name, drafting, 1)
        if name != "block":
            require_lossless(name, drafting, 4)


@pytest.mark.parametrize("name", ["coupled", "nss"])
def test_a_deterministic_tree_takes_what_ignores_how_it_was_drafted(name: str) -> None:
    require_lossless(name, "tree", 4)


@pytest.mark.parametrize(
    ("name", "drafting", "line"),
    [
        ("block", "iid", "verifier block takes one drafted path, not 4; give K = 1, or choose --ver"),
        ("coupled", "delayed", r"verifier coupled does not work on sampled trees.*choose another --verifier, for ex"),
        *(
            (name, "tree", f"verifier {name} is biased on deterministic trees.*choose --verifier nss")
            for name in VERIFIER_NAMES
            if name != "nss"
        ),
        ("best", "iid", r"verifier is 'best', .*choose from coupled, nss, naive,"),
        ("nss", "wild", r"drafting is 'wild', .*choose from tree, iid, delayed, selector"),
    ],
)
def test_what_would_bias_the_text_and_unknown_names_are_refused(name: str, drafting: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        require_lossless(name, drafting, 4)
