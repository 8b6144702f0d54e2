"""By exact enumeration, lossless verifiers emit what the target would; those with a mistake do not."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch

from decoder.draft.delayed_shape import DelayedTree
from decoder.forward.language_model import Fit
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import probabilities
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row, Rows
from decoder.verify.lossless.top_down import Accepted
from decoder.verify.lossless.verifiers import VERIFIERS
from tests.decoder.verify.lossless.enumeration import (
    KINDS,
    SHAPES,
    VOCABULARY,
    Drafter,
    Models,
    Trees,
    delayed_trees,
    emitted,
    models,
    trees_of,
)
from tests.decoder.verify.lossless.row_by_row import VERIFY, Verify
from tests.decoder.verify.lossless.wrong_verifiers import WRONG, Wrong

EXACT = 1e-10


def on_tensors(name: str, tree: DrawnTree, target: Rows, draft: Rows, generator: RandomGenerator) -> Accepted:
    return VERIFIERS[name].on_device(tree, torch.tensor(target), torch.tensor(draft), generator)


def assert_exact(verify: Callable[[str], Verify], trees: Trees, pair: Models, shape: DelayedTree) -> None:
    """Asserts that every verifier emits what the target would."""
    fitting = [name for name in VERIFIERS if shape.k == 1 or name != "block"]
    found = {name: emitted(verify(name), trees, pair, shape.depth).distance for name in fitting}
    assert max(found.values()) < EXACT, found


def marks(shape: tuple[int, ...], kind: str) -> list[pytest.MarkDecorator]:
    """Trees with three draws a node are slow; with these kinds, such trees have the most outcomes."""
    if shape[0] < 3:
        return []
    return [pytest.mark.soak if kind in {"close", "equal"} else pytest.mark.slow]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        pytest.param(DelayedTree(*shape), kind, id=f"{shape}-{kind}", marks=marks(shape, kind))
        for shape in SHAPES
        for kind in KINDS
    ],
)
def test_every_verifier_emits_what_the_target_would(shape: DelayedTree, kind: str) -> None:
    pair = models(kind, shape.depth)
    assert_exact(VERIFY.__getitem__, delayed_trees(shape, pair), pair, shape)


ONE_LEVEL = DelayedTree(1, 0, 2), DelayedTree(2, 0, 1), DelayedTree(3, 0, 1)


@pytest.mark.parametrize(
    ("shape", "kind"), [*itertools.product(ONE_LEVEL, KINDS), (DelayedTree(2, 0, 2), "generic")], ids=str
)
def test_so_does_every_verifier_on_tensors(shape: DelayedTree, kind: str) -> None:
    pair = models(kind, shape.depth)
    assert_exact(lambda name: partial(on_tensors, name), delayed_trees(shape, pair), pair, shape)


@pytest.mark.parametrize("shape", [DelayedTree(1, 0, 2), DelayedTree(2, 0, 1)], ids=str)
def test_so_it_does_for_a_target_with_more_tokens_than_its_draft(shape: DelayedTree) -> None:
    """The rows are those of the engine: the draft's logits over two tokens, among the target's three."""
    conversion, both = Fit(known=2, width=VOCABULARY, instead=0), models("generic", shape.depth)
    own = {text: torch.tensor(row[:2]).log()[None] for text, row in both.draft.items()}
    rows = {text: probabilities(conversion.logits(row), [Sampling(0.9)])[0] for text, row in own.items()}
    assert all(float(row[2]) == 0 < both.target[text][2] for text, row in rows.items())
    draft = {text: row.double().numpy() / float(row.double().sum()) for text, row in rows.items()}
    pair = Models(both.target, draft)
    assert_exact(VERIFY.__getitem__, delayed_trees(shape, pair), pair, shape)


@pytest.mark.parametrize("kind", ["generic", "close", "target zeros", "draft zeros"])
def test_no_verifier_of_one_path_accepts_more_than_block(kind: str) -> None:
    shape = DelayedTree(1, 0, 3)
    pair = models(kind, shape.depth)
    trees = delayed_trees(shape, pair)
    found = {name: emitted(verify, trees, pair, shape.depth).tokens for name, verify in VERIFY.items()}
    assert found["block"] == pytest.approx(found["traversal"], abs=1e-14)
    assert found["block"] > max(found[name] for name in VERIFIERS if name not in {"block", "traversal"}) + 1e-6


TABLES = ("mixed", 0), ("generic", 5), ("mixed", 8), ("mixed", 9)
"""Cases chosen so that each mistake is visible in one of them."""


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.mistake)
def test_a_wrong_verifier_is_far_from_the_target(wrong: Wrong) -> None:
    pairs = [models(kind, wrong.shape.depth, seed) for kind, seed in TABLES]
    found = [emitted(wrong.verify, delayed_trees(wrong.shape, pair), pair, wrong.shape.depth) for pair in pairs]
    assert max(each.distance for each in found) > 0.05


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
