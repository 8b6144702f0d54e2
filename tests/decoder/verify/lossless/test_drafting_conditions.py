"""Exact bias of verifiers with various draftings, on which the registry of allowed combinations is based."""

from collections.abc import Callable, Sequence

import pytest
import torch

from decoder.tree import TokenTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row
from tests.decoder.verify.lossless.enumeration import Drafter, Models, emitted, models, trees_of
from tests.decoder.verify.lossless.row_by_row import VERIFY

DEPTH = 2
TREES = tuple(name for name in VERIFY if name != "block")
Rule = Callable[[Models, TokenTree, int, int, RandomGenerator], Sequence[int]]
"""(models, tree so far, node, number of draws above it, random generator) -> draws after the node."""


def grown(rule: Rule, grows: Callable[[TokenTree, int, Row], bool] = lambda *_: True) -> Drafter:
    """Drafts two levels: `rule` draws after a node, `grows` decides whether a drawn node gets draws."""

    def draft(pair: Models, generator: RandomGenerator) -> TokenTree:
        tree, level = TokenTree([-1], draws={}), {0: 2}
        for _ in range(DEPTH):
            below: dict[int, int] = {}
            for node, count in level.items():
                row = pair.draft[path(tree, node)]
                tokens = rule(pair, tree, node, count, generator)
                for child in tree.draw(node, tokens, [0.0] * len(tokens), torch.tensor(row)):
                    if grows(tree, child, row):
                        below[child] = below.get(child, 0) + 1
            level = below
        return tree

    return draft


def path(tree: TokenTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[each] for each in tree.ancestors(node)[-2::-1])


def draws(pair: Models, tree: TokenTree, node: int, count: int, generator: RandomGenerator) -> list[int]:
    return [generator.choice(pair.draft[path(tree, node)]) for _ in range(count)]


def width_by_context(pair: Models, tree: TokenTree, node: int, count: int, generator: RandomGenerator) -> list[int]:
    return draws(pair, tree, node, 1 + (pair.draft[path(tree, node)].max() < 0.7) + 0 * count, generator)


def sibling_after_a_poor_draw(
    pair: Models, tree: TokenTree, node: int, _: int, generator: RandomGenerator
) -> list[int]:
    found = draws(pair, tree, node, 1, generator)
    return found + draws(pair, tree, node, int(pair.draft[path(tree, node)][found[0]] < 0.5), generator)


def dropping(pair: Models, tree: TokenTree, node: int, count: int, generator: RandomGenerator) -> list[int]:
    found = draws(pair, tree, node, count, generator)
    return [token for token in found if pair.draft[path(tree, node)][token] >= 0.3]


def sorted_by_probability(
    pair: Models, tree: TokenTree, node: int, count: int, generator: RandomGenerator
) -> list[int]:
    return sorted(draws(pair, tree, node, count, generator), key=lambda token: -pair.draft[path(tree, node)][token])


def without_replacement(pair: Models, tree: TokenTree, node: int, count: int, generator: RandomGenerator) -> list[int]:
    row, found = pair.draft[path(tree, node)].copy(), list[int]()
    for _ in range(count):
        found.append(generator.choice(row))
        row[found[-1]] = 0
    return found


def most_probable(pair: Models, tree: TokenTree, node: int, count: int, generator: RandomGenerator) -> list[int]:  # noqa: ARG001 - signature of a rule
    return (-pair.draft[path(tree, node)]).argsort()[:count].tolist()  # type: ignore[no-any-return]  # numpy's stubs return Any


def good(tree: TokenTree, node: int, row: Row) -> bool:
    return bool(row[tree.tokens[node]] >= 0.3)


def best_so_far(tree: TokenTree, node: int, row: Row) -> bool:
    """Allows draws only after the most probable of the drawn siblings."""
    siblings = [each for each in range(len(tree)) if tree.parents[each] == tree.parents[node]]
    return all(row[tree.tokens[node]] >= row[tree.tokens[each]] for each in siblings)


def distances(drafter: Drafter) -> dict[str, float]:
    """Bias of each verifier, the largest of two pairs."""
    pairs = [models("generic", DEPTH, seed) for seed in (5, 7)]
    trees = [trees_of(drafter, pair) for pair in pairs]
    return {
        name: max(emitted(VERIFY[name], *given, DEPTH).distance for given in zip(trees, pairs, strict=True))
        for name in TREES
    }


@pytest.mark.parametrize(
    "drafter",
    [grown(draws), grown(width_by_context), grown(draws, good), grown(draws, best_so_far)],
    ids=["independent draws", "a width by context", "no draws after a poor one", "draws after the best one alone"],
)
def test_what_to_draw_next_may_depend_on_all_that_was_drawn(drafter: Drafter) -> None:
    found = distances(drafter)
    assert max(found.values()) < 1e-10, found


@pytest.mark.parametrize(
    ("rule", "biased"),
    [
        pytest.param(sibling_after_a_poor_draw, {"spectr", "specinfer", "khisti"}, marks=pytest.mark.slow),
        (dropping, {*TREES} - {"nss"}),
        (sorted_by_probability, {"naive", "naive_tree", "spectr", "traversal"}),
        (without_replacement, {"spectr", "specinfer", "khisti", "traversal"}),
        (most_probable, {*TREES} - {"nss"}),
    ],
    ids=["a sibling after a poor draw", "drops a draw", "sorts siblings", "without replacement", "deterministic"],
)
def test_a_list_that_is_no_list_of_independent_draws_biases(rule: Rule, biased: set[str]) -> None:
    found = distances(grown(rule))
    assert {name for name, distance in found.items() if distance > 1e-10} == biased, found
    assert min(found[name] for name in biased) > 0.004, found
