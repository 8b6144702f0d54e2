"""Closed forms of acceptance rate, branching and block efficiency equal the enumeration of all draws and outcomes."""

import itertools
from collections import defaultdict
from functools import partial

import numpy as np
import pytest

from decoder.draft.delayed_shape import DelayedTree
from decoder.verify.lossless import khisti, specinfer, spectr
from decoder.verify.lossless.acceptance_bound import acceptance_bound
from decoder.verify.lossless.rows import Row
from decoder.verify.lossless.verifiers import SOLVERS, VERIFIERS
from tests.decoder.verify.lossless.enumeration import KINDS, delayed_trees, emitted, models, outcomes, pair, verified
from tests.decoder.verify.lossless.row_by_row import SOLVES, VERIFY, expected_tokens

ALL_KINDS = pytest.mark.parametrize("kind", KINDS)
ALL_SOLVERS = pytest.mark.parametrize("name", SOLVERS)
Pair = tuple[Row, Row]


def pairs(kind: str, count: int = 2, vocabulary: int = 3) -> list[Pair]:
    luck = np.random.default_rng(3)
    return [pair(kind, luck, vocabulary) for _ in range(count)]


def drawn_lists(draft_probs: Row, draws: int) -> list[tuple[tuple[int, ...], float]]:
    """All possible lists of draws, with their probabilities."""
    lists = itertools.product(np.flatnonzero(draft_probs).tolist(), repeat=draws)
    return [(drawn, float(draft_probs[list(drawn)].prod())) for drawn in lists]


def token_law(name: str, rows: Pair, drawn: tuple[int, ...]) -> dict[int, float]:
    """The law of the token, given the draws, over all random outcomes."""
    law: dict[int, float] = defaultdict(float)
    for token, probability in outcomes(lambda generator: SOLVES[name](*rows, drawn, generator)):
        law[token] += probability
    return law


def enumerated_rate(name: str, rows: Pair, draws: int) -> float:
    return sum(
        probability * sum(token_law(name, rows, drawn)[token] for token in set(drawn))
        for drawn, probability in drawn_lists(rows[1], draws)
    )


@ALL_SOLVERS
@ALL_KINDS
def test_the_rate_of_acceptance_is_that_of_all_draws_and_coins(name: str, kind: str) -> None:
    for draws in (1, 2, 3):
        for rows in pairs(kind):
            rate, expected = SOLVERS[name].acceptance_rate(*rows, draws), enumerated_rate(name, rows, draws)
            assert rate == pytest.approx(expected, abs=1e-3 if name == "khisti" else 1e-9)
            assert rate <= expected + 1e-9


@ALL_SOLVERS
@ALL_KINDS
def test_branching_is_the_law_of_the_coins(name: str, kind: str) -> None:
    for rows, draws in itertools.product(pairs(kind), (1, 2, 3)):
        for drawn, _ in drawn_lists(rows[1], draws):
            branching, law = SOLVERS[name].branching(*rows, drawn), token_law(name, rows, drawn)
            assert branching == pytest.approx({token: law[token] for token in set(drawn)}, abs=1e-12)


def test_branching_of_four_draws_is_the_law_of_the_coins() -> None:
    (rows,) = pairs("generic", 1)
    for name, solver in SOLVERS.items():
        law = token_law(name, rows, (2, 0, 2, 1))
        assert solver.branching(*rows, (2, 0, 2, 1)) == pytest.approx({each: law[each] for each in range(3)}), name


@ALL_KINDS
def test_with_one_draw_all_but_nss_are_naive(kind: str) -> None:
    for target_probs, draft_probs in pairs(kind, 20, vocabulary=8):
        common = np.minimum(target_probs, draft_probs).sum()
        for name, solver in SOLVERS.items():
            if name != "nss":
                assert solver.acceptance_rate(target_probs, draft_probs, 1) == pytest.approx(common, abs=1e-12), name


@ALL_KINDS
def test_no_rate_exceeds_the_bound(kind: str) -> None:
    for draws in (1, 2, 3, 4):
        for rows in pairs(kind, 20, vocabulary=8):
            bound = acceptance_bound(*rows, draws)
            for name, solver in SOLVERS.items():
                assert solver.acceptance_rate(*rows, draws) <= bound + 1e-9, name


@ALL_KINDS
def test_the_bound_is_the_least_over_all_sets_of_tokens(kind: str) -> None:
    for (target_probs, draft_probs), draws in itertools.product(pairs(kind, 5, vocabulary=6), (1, 2, 3)):
        sets = [list(each) for size in range(7) for each in itertools.combinations(range(6), size)]
        least = min(target_probs[each].sum() + 1 - draft_probs[each].sum() ** draws for each in sets)
        assert acceptance_bound(target_probs, draft_probs, draws) == pytest.approx(least, abs=1e-12)


def test_solvers_rank_as_in_the_measurements() -> None:
    """The order of mean gaps to the bound at two draws reveals a lossless solver that accepts less than it should."""
    toys = pairs("generic", 200, vocabulary=5)
    gaps = [
        np.mean([acceptance_bound(*rows, 2) - SOLVERS[name].acceptance_rate(*rows, 2) for rows in toys])
        for name in ("khisti", "spectr", "specinfer", "naive_tree", "nss")
    ]
    assert gaps == sorted(gaps)
    assert gaps[0] < 0.1 * gaps[1]


@pytest.mark.parametrize("shape", [DelayedTree(1, 0, 2), DelayedTree(2, 1, 1), DelayedTree(2, 0, 2)], ids=str)
@pytest.mark.parametrize("name", VERIFIERS)
def test_expected_tokens_of_a_tree_are_those_of_all_coins(name: str, shape: DelayedTree) -> None:
    toys = models("generic", shape.depth, 9)
    for tree, _ in [] if name == "block" and shape.k > 1 else delayed_trees(shape, toys)[::7]:
        expected = sum(probability * (len(path) + 1) for (path, _), probability in verified(VERIFY[name], tree, toys))
        assert expected_tokens(name, tree, *toys.rows(tree)) == pytest.approx(expected, abs=1e-12)


def test_block_accepts_eleven_ninths_where_naive_accepts_ten() -> None:
    """The example of Sun et al. 2024: two tokens, the same rows everywhere."""
    target_probs, draft_probs = np.array([1, 2, 0]) / 3, np.array([2, 1, 0]) / 3
    shape, toys = DelayedTree(1, 0, 2), models("generic", 2, 77)
    for text in toys.target:
        toys.target[text], toys.draft[text] = target_probs, draft_probs
    trees = delayed_trees(shape, toys)
    accepted = {name: emitted(VERIFY[name], trees, toys, 2).tokens - 1 for name in ("block", "naive")}
    assert accepted == pytest.approx({"block": 11 / 9, "naive": 10 / 9})


@pytest.mark.parametrize("draws", [2, 3, 4])
def test_the_law_of_a_tournament_is_that_of_its_winner(draws: int) -> None:
    for target_probs, draft_probs in pairs("generic", 3):
        law = np.zeros(3)
        for drawn, probability in drawn_lists(draft_probs, draws):
            entries = [(draft_probs, {token: 1.0}) for token in drawn]
            _, winners = khisti.tournament(entries, partial(khisti._meet, target_probs))
            for token, wins in winners.items():
                law[token] += probability * wins
        assert khisti.winner_law(target_probs, draft_probs, draws) == pytest.approx(law, abs=1e-14)


def test_the_division_factor_solves_its_equation() -> None:
    for target_probs, draft_probs in pairs("generic", 10, vocabulary=8):
        factor = spectr.division_factor(target_probs, draft_probs, 3)
        single = np.minimum(target_probs / factor, draft_probs).sum()
        assert 1 - (1 - single) ** 3 == pytest.approx(factor * single, abs=1e-9)


def test_residuals_by_scalars_are_those_of_updated_rows() -> None:
    for target_probs, draft_probs in pairs("generic", 10, vocabulary=8):
        row = target_probs
        for found in specinfer.residuals(target_probs, draft_probs, 4):
            assert found == pytest.approx(row, abs=1e-12)
            left = np.maximum(row - draft_probs, 0)
            row = left / left.sum()


def test_nss_on_a_fixed_tree_accepts_what_the_target_would_write() -> None:
    toys = models("generic", 2, 5)
    tree, _ = max(delayed_trees(DelayedTree(2, 0, 2), toys), key=lambda each: len(each[0]))
    target_probs, _ = toys.rows(tree)
    probabilities = {0: 1.0}
    for node in range(1, len(tree)):
        probabilities[node] = probabilities[tree.parents[node]] * target_probs[tree.parents[node], tree.tokens[node]]
    expected = expected_tokens("nss", tree, *toys.rows(tree))
    assert expected == pytest.approx(sum(probabilities.values()))
