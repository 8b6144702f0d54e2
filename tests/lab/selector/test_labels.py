"""Roots along a text, draws that all shapes share, and labels: the expected tokens of a round of each shape."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from decoder.draft.delayed_shape import ACTIONS, ONE_PATH, DelayedTree, action_number, distinct_shapes
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import VERIFIERS
from dynatui.lab.bench.labels import LABELLED, TextRoots, shared_draws
from tests.decoder.makers import TinyModels
from tests.decoder.verify.lossless.enumeration import delayed_trees, models, outcomes
from tests.lab.selector.made_roots import MadeDraft, random_draws

Nested: TypeAlias = "tuple[int, tuple[Nested, ...]]"


def nested(tree: DrawnTree, node: int = 0) -> Nested:
    """A node's token, and its children in the order of sampling; a child sampled twice is there twice."""
    return tree.tokens[node], tuple(nested(tree, child) for child in tree.children[node])


def alone(tree: DrawnTree) -> tuple[DrawnTree, list[int]]:
    """A tree without the nodes that are nobody's children, and its nodes' former numbers."""
    nodes = sorted({0, *chain.from_iterable(tree.children)})
    place = {-1: -1} | {node: number for number, node in enumerate(nodes)}
    tokens = tuple(tree.tokens[node] for node in nodes)
    parents = tuple(place[tree.parents[node]] for node in nodes)
    children = tuple(tuple(place[child] for child in tree.children[node]) for node in nodes)
    return DrawnTree(tokens, parents, children), nodes


@pytest.mark.parametrize("verifier", LABELLED)
def test_a_label_is_the_expected_efficiency_of_the_action_s_own_tree(verifier: str) -> None:
    assert set(LABELLED) == set(VERIFIERS)
    for seed in range(2):
        root = random_draws(seed)
        labels = root.expected_tokens(verifier)
        for action, label, one_path, tree in zip(ACTIONS, labels, ONE_PATH, root.draws.subtrees, strict=True):
            if verifier == "block" and not one_path:
                assert np.isnan(label)
                continue
            if action == DelayedTree(1, 0, 0):
                assert label == 1
            own, nodes = alone(tree)
            enumerated = sum(VERIFIERS[verifier].reach(own, root.target_probs[nodes], root.draft_probs[nodes]))
            assert label == pytest.approx(enumerated, abs=1e-12)


@pytest.mark.parametrize("action", [DelayedTree(1, 0, 16), DelayedTree(3, 2, 5), DelayedTree(4, 8, 8)], ids=str)
def test_the_tree_of_an_action_has_its_draws(action: DelayedTree) -> None:
    tree = random_draws(3).draws.subtrees[action_number(action)]
    by_depth = Counter[int]()
    for node, drawn in enumerate(tree.children):
        by_depth[tree.depths[node]] += len(drawn)
    assert dict(+by_depth) == {depth: 1 if depth < action.l1 else action.k for depth in range(action.depth)}


TEXT = [5, 9, 17, 40, 3, 8, 61, 22]
MOST = DelayedTree(2, 1, 2)
WARM = Sampling(0.8)


@pytest.mark.parametrize("kind", ["generic", "draft zeros"])
def test_within_shared_draws_a_shape_s_tree_is_distributed_as_if_it_had_been_drawn_alone(kind: str) -> None:
    pair = models(kind, MOST.depth)
    draft: Any = MadeDraft(
        lambda _: pair.draft_rows(TokenTree([-1]), [0]).log(), lambda tree, nodes: pair.draft_rows(tree, nodes).log()
    )
    laws: dict[DelayedTree, dict[Nested, float]] = defaultdict(lambda: defaultdict(float))
    for draws, probability in outcomes(lambda generator: shared_draws(draft, [-1], Sampling(1.0), MOST, generator)):
        for shape, tree in zip(draws.shapes, draws.subtrees, strict=True):
            laws[shape][nested(tree)] += probability
    assert list(laws) == distinct_shapes(2, 1, 2)
    for shape, law in laws.items():
        assert law == pytest.approx({nested(tree): chance for tree, chance in delayed_trees(shape, pair)}, abs=1e-6)


@pytest.fixture
def pair(tiny_models: TinyModels) -> Pair:
    return tiny_models.loaded(tiny_models.pair("neox"), "float32").pair.observed()


def near(probs: torch.Tensor) -> Any:
    return pytest.approx(probs.numpy(), abs=1e-4)


def plain(pair: Pair, text: Sequence[int], *, draft: bool = False) -> torch.Tensor:
    """A model's distribution after a text, by one pass over the whole text."""
    model = pair.draft_model if draft else pair.target
    logits = model.read(model.new_cache(40), text)
    return (logits.double() / WARM.temperature).softmax(-1)


def test_draws_and_roots_have_the_rows_of_plain_passes(pair: Pair) -> None:
    roots = TextRoots(pair, WARM, MOST, len(TEXT), PhiloxGenerator(0))
    for end in (2, 5, 8):
        root, text = roots.advance(TEXT[:end]), TEXT[:end]
        for drawn in (roots.drawn(), roots.drawn()):
            tree = drawn.draws.tree
            for node in range(len(tree)):
                path = [tree.tokens[each] for each in reversed(tree.ancestors(node)[:-1])]
                assert drawn.target_probs[node] == near(plain(pair, [*text, *path]))
                if drawn.draft_probs[node].any():
                    assert drawn.draft_probs[node] == near(plain(pair, [*text, *path], draft=True))
        assert root.target_before.numpy() == near(plain(pair, text[:-1]))
        assert root.draft_before.numpy() == near(plain(pair, text[:-1], draft=True))
        assert root.draft_at.numpy() == near(plain(pair, text, draft=True))
        assert (root.length, len(root.hidden)) == (end, 3)


def test_other_draws_come_of_each_call_and_the_same_of_one_seed(pair: Pair) -> None:
    def trees(seed: int) -> list[tuple[int, ...]]:
        roots = TextRoots(pair, WARM, DelayedTree(3, 2, 3), len(TEXT), PhiloxGenerator(seed))
        roots.advance(TEXT)
        return [tuple(roots.drawn().draws.tree.tokens) for _ in range(2)]

    one, two = trees(1)
    assert one != two
    assert trees(1) == [one, two]
    assert trees(2) != [one, two]
