"""Closed forms, traversals and tables of lossless verifiers."""

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from decoder.draft.delayed_shape import DelayedTree
from decoder.errors import ModelError
from decoder.tree import TokenTree
from decoder.verify.lossless import spectr
from decoder.verify.lossless.bottom_up import Stop, block_stops, split_node, traversal_stops
from decoder.verify.lossless.drawn_tree import DrawnTree, draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.rows import Row, Rows, residual
from decoder.verify.lossless.verifiers import SOLVERS, VERIFIERS, acceptance_bound
from decoder.verify.names import VERIFIER_NAMES
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
    lists = [(rows, drawn) for rows in pairs(kind) for draws in (1, 2, 3) for drawn, _ in drawn_lists(rows[1], draws)]
    for rows, drawn in [*lists, *([(pairs(kind, 1)[0], (2, 0, 2, 1))] if kind == "generic" else [])]:
        branching, law = SOLVERS[name].branching(*rows, drawn), token_law(name, rows, drawn)
        assert branching == pytest.approx({token: law[token] for token in set(drawn)}, abs=1e-12)


@ALL_KINDS
def test_no_rate_exceeds_the_bound_and_with_one_draw_all_but_nss_are_naive(kind: str) -> None:
    for draws, rows in itertools.product((1, 2, 3, 4), pairs(kind, 20, vocabulary=8)):
        bound, common = acceptance_bound(*rows, draws), np.minimum(*rows).sum()
        for name, solver in SOLVERS.items():
            rate = solver.acceptance_rate(*rows, draws)
            assert rate <= bound + 1e-9, name
            assert draws > 1 or name == "nss" or rate == pytest.approx(common, abs=1e-12), name


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


def test_the_division_factor_solves_its_equation() -> None:
    for target_probs, draft_probs in pairs("generic", 10, vocabulary=8):
        factor = spectr.division_factor(target_probs, draft_probs, 3)
        single = np.minimum(target_probs / factor, draft_probs).sum()
        assert 1 - (1 - single) ** 3 == pytest.approx(factor * single, abs=1e-9)


def by_rows(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> Iterator[tuple[int, float, Row]]:
    """Slots in post-order, each with its remaining probability and its law of the next token."""

    def visit(node: int, probability: float, *, owns: bool) -> Iterator[tuple[int, float, Row]]:
        row, seen = target_probs[node], set[int]()
        for child in tree.children[node] if owns else ():
            token = tree.tokens[child]
            yield from visit(
                child, min(1.0, probability * row[token] / draft_probs[node, token]), owns=child not in seen
            )
            seen.add(child)
            left = np.maximum(probability * row - draft_probs[node], 0)
            if left.sum() > 0:
                row, probability = left / left.sum(), left.sum() / (left.sum() + 1 - probability)
            else:
                probability = float(probability >= 1)
        yield node, probability, row

    yield from visit(0, 1.0, owns=True)


@pytest.mark.parametrize("kind", KINDS)
def test_scalars_bring_the_same_chances_and_rows(kind: str) -> None:
    shape = DelayedTree(3, 0, 2)
    pair = models(kind, shape.depth, 9)
    for tree, _ in delayed_trees(shape, pair)[::13]:
        rows = pair.rows(tree)
        expected = (each for each in by_rows(tree, *rows) if each[1] > 0)
        for stop, (node, probability, row) in zip(reachable(tree, *rows), expected, strict=False):
            assert stop.node == node
            assert stop.probability == pytest.approx(probability)
            after = residual(rows[0][node], rows[1][node], stop.removed)
            assert after == pytest.approx(row, abs=1e-9)


def reachable(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> Iterator[Stop]:
    """Stops up to the first with probability 1."""
    for stop in traversal_stops(tree, target_probs, draft_probs):
        if stop.probability > 0:
            yield stop
        if stop.probability > 1 - 1e-12:
            return


def test_a_draw_of_chance_zero_prunes_what_is_below_it() -> None:
    tree = DrawnTree((-1, 0, 1), (-1, 0, 1), ((1,), (2,), ()))
    target_probs = np.array([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    draft_probs = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]])
    assert [stop.node for stop in traversal_stops(tree, target_probs, draft_probs)] == [0]


@pytest.mark.parametrize("probability", [1.0, 0.7, 0.3])
def test_a_token_drawn_again_has_nothing_left(probability: float) -> None:
    """That only the first of equal draws owns the subtree does not reduce acceptance."""
    luck = np.random.default_rng(3)
    for _ in range(50):
        target_probs, draft_probs = luck.dirichlet(np.ones(4), 2)
        first, second, again, once_more = split_node(target_probs, draft_probs, (1, 2, 1, 1), probability).slots
        assert first == 1 or second == 1 or again == once_more == 0


def test_the_paper_s_verifiers_are_there() -> None:
    assert (
        tuple(VERIFIERS)
        == VERIFIER_NAMES
        == ("nss", "naive", "naive_tree", "spectr", "specinfer", "khisti", "block", "traversal")
    )


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("broken", ["target", "draft"])
def test_nan_is_refused(name: str, broken: str) -> None:
    tree = TokenTree([3])
    tree.draw(0, [1], [-0.7], torch.tensor([0.5, 0.5]))
    rows = {"target": np.full((2, 2), 0.5), "draft": np.array([[0.5, 0.5], [0, 0]])}
    rows[broken][0, 0] = np.nan
    given = torch.tensor(rows["target"]), torch.tensor(rows["draft"])
    with pytest.raises(ModelError, match="probability is not finite"):
        VERIFIERS[name].on_device(drawn_tree(tree), *given, PhiloxGenerator(0))


@pytest.mark.parametrize("name", ["block", "traversal"])
@pytest.mark.parametrize("hardly", [1e-40, 1e-43])
def test_a_chance_whose_inverse_overflows_is_none(name: str, hardly: float) -> None:
    """Tiny probabilities of low temperatures and zeros of top-p must not lead to infinite values."""
    tree = TokenTree([3])
    tree.draw(0, [1], [-0.7], torch.tensor([0.5, 0.5, 0.0]))
    tree.draw(1, [0], [-0.7], torch.tensor([0.5, 0.5, 0.0]))
    target_probs = torch.tensor([[0.5, hardly, 0.5], [0.5, 0.0, 0.5], [0.5, 0.0, 0.5]])
    given = target_probs, draft_rows(tree, target_probs)
    pure = given[0].double().numpy() ** 8, given[1].double().numpy() ** 8
    for seed in range(20):
        assert VERIFIERS[name].on_device(drawn_tree(tree), *given, PhiloxGenerator(seed))[0] == []
        assert VERIFY[name](drawn_tree(tree), *pure, PhiloxGenerator(seed))[0] == []


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_round_without_a_draft_emits_one_token_of_the_target(name: str) -> None:
    tree = drawn_tree(TokenTree([3], draws={}))
    target_probs, draft_probs = np.array([[0.0, 1.0, 0.0]]), np.zeros((1, 3))
    assert VERIFY[name](tree, target_probs, draft_probs, PhiloxGenerator(0)) == ([], 1)
    given = torch.tensor(target_probs), torch.tensor(draft_probs)
    assert VERIFIERS[name].on_device(tree, *given, PhiloxGenerator(0)) == ([], 1)
    assert VERIFIERS[name].reach(tree, target_probs, draft_probs) == [1]


def test_a_grown_tree_s_children_count_once() -> None:
    tree = TokenTree([9])
    tree.grow(0, [2, 1], [-0.5, -1.5])
    assert drawn_tree(tree).children == ((1, 2), (), ())
    assert not draft_rows(tree, torch.ones(3, 4)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_on_one_path_traversal_is_block_verification(kind: str) -> None:
    pair = models(kind, 3, 9)
    for tree, _ in delayed_trees(DelayedTree(1, 0, 3), pair):
        found, expected = (
            {stop.node: stop.probability for stop in stops(tree, *pair.rows(tree)) if stop.probability > 0}
            for stops in (traversal_stops, block_stops)
        )
        assert found == pytest.approx(expected, abs=1e-12)


def test_a_drawn_tree_keeps_draws_in_their_order_with_multiplicity_and_rows_and_block_refuses_it() -> None:
    tree, row = TokenTree([9]), torch.tensor([0.2, 0.3, 0.5])
    tree.draw(0, [2, 1, 2], [-1.0] * 3, row)
    found = drawn_tree(tree)
    assert (found.children, found.drawn(0)) == (((1, 2, 1), (), ()), [2, 1, 2])
    assert list(found.slots(0)) == [(0, 1, True), (1, 2, True), (2, 1, False)]
    assert torch.equal(draft_rows(tree, torch.ones(3, 3)), torch.stack([row, *torch.zeros(2, 3)]))
    with pytest.raises(ValueError, match="is not a chain"):
        VERIFIERS["block"].on_device(found, torch.ones(3, 3), torch.ones(3, 3), PhiloxGenerator(0))
    tree.draw(1, [0, 1], [-1.0, -1.0], row)
    assert drawn_tree(tree).first_path().children == ((1,), (3,), (), (), ())
