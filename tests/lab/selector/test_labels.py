"""Roots along a text, draws that all shapes share, and labels: the expected tokens of a round of each shape."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.selector.actions import ACTIONS, ONE_PATH, number
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import VERIFIERS
from dynatui.lab.selector.labels import LABELLED, TextRoots, shared_draws
from tests.decoder.makers import TinyModels
from tests.decoder.verify.lossless.enumeration import Models, delayed_trees, models, outcomes
from tests.lab.selector.made_roots import random_draws


@pytest.mark.parametrize("verifier", LABELLED)
def test_a_label_is_the_expected_efficiency_of_the_action_s_own_tree(verifier: str) -> None:
    for seed in range(2):
        root = random_draws(seed)
        labels = root.expected_tokens(verifier)
        for action, label, one_path in zip(ACTIONS, labels, ONE_PATH, strict=True):
            if verifier == "block" and not one_path:
                assert np.isnan(label)
                continue
            tree, nodes = root.draws.subtree(action)
            rows = root.target_probs[nodes], root.draft_probs[nodes]
            enumerated = sum(VERIFIERS[verifier].reach(tree, *rows))
            assert label == pytest.approx(enumerated, abs=1e-12)


def test_every_verifier_can_be_labelled() -> None:
    assert set(LABELLED) == set(VERIFIERS)


@pytest.mark.parametrize("action", [DelayedTree(1, 0, 16), DelayedTree(3, 2, 5), DelayedTree(4, 8, 8)], ids=str)
def test_the_tree_of_an_action_has_its_draws(action: DelayedTree) -> None:
    tree, _ = random_draws(3).draws.subtree(action)
    by_depth = Counter[int]()
    for node, drawn in enumerate(tree.children):
        by_depth[tree.depths[node]] += len(drawn)
    assert dict(+by_depth) == {depth: 1 if depth < action.l1 else action.k for depth in range(action.depth)}


def test_plain_decoding_brings_one_token() -> None:
    root = random_draws(6)
    assert all(root.expected_tokens(name)[number(DelayedTree(1, 0, 0))] == 1 for name in LABELLED)


TEXT = [5, 9, 17, 40, 3, 8, 61, 22]
MOST = DelayedTree(2, 1, 2)
WARM = Sampling(0.8)


class ToyDraft:
    """A draft model whose logits encode the given rows, after an unknown text."""

    def __init__(self, pair: Models) -> None:
        self._pair = pair

    def begin_tree(self) -> None:
        pass

    def commit(self, path: Sequence[int]) -> None:
        pass

    def again_after(self, _text: Sequence[int], _latest: int) -> tuple[torch.Tensor, list[int]]:
        return self._pair.draft_rows(TokenTree([-1]), [0]).log(), []

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[torch.Tensor, list[int]]:
        return self._pair.draft_rows(tree, nodes).log(), []


@pytest.mark.parametrize("kind", ["generic", "draft zeros"])
def test_within_shared_draws_a_shape_s_tree_is_distributed_as_if_it_had_been_drawn_alone(kind: str) -> None:
    pair = models(kind, MOST.depth)
    draft: Any = ToyDraft(pair)
    laws: dict[DelayedTree, dict[DrawnTree, float]] = defaultdict(lambda: defaultdict(float))
    for draws, probability in outcomes(lambda generator: shared_draws(draft, [-1], Sampling(1.0), MOST, generator)):
        for shape in draws.shapes:
            laws[shape][draws.subtree(shape)[0]] += probability
    assert list(laws) == distinct_shapes(2, 1, 2)
    for shape, law in laws.items():
        assert law == pytest.approx(dict(delayed_trees(shape, pair)), abs=1e-6)


@pytest.fixture
def pair(tiny_models: TinyModels) -> Pair:
    return tiny_models.loaded(tiny_models.pair("neox"), "float32").pair.observed()


def plain(pair: Pair, text: Sequence[int], *, draft: bool = False) -> torch.Tensor:
    """A model's distribution after a text, by one pass over the whole text."""
    model = pair.draft_model if draft else pair.target
    logits = model.read(model.new_cache(40), text)
    return (logits.double() / WARM.temperature).softmax(-1)


def test_draws_have_the_rows_of_plain_passes(pair: Pair) -> None:
    roots = TextRoots(pair, WARM, MOST, len(TEXT), PhiloxGenerator(0))
    for end in (3, 6):
        roots.advance(TEXT[:end])
        for _ in range(2):
            drawn = roots.drawn()
            tree = drawn.draws.tree
            for node in range(len(tree)):
                path = [tree.tokens[each] for each in reversed(tree.ancestors(node)[:-1])]
                text = [*TEXT[:end], *path]
                assert drawn.target_probs[node] == pytest.approx(plain(pair, text).numpy(), abs=1e-4)
                if drawn.draft_probs[node].any():
                    assert drawn.draft_probs[node] == pytest.approx(plain(pair, text, draft=True).numpy(), abs=1e-4)


def test_a_root_knows_what_was_said_before_its_last_token_and_what_the_draft_says_after_it(pair: Pair) -> None:
    roots = TextRoots(pair, WARM, MOST, len(TEXT), PhiloxGenerator(0))
    for end in (2, 5, 8):
        root = roots.advance(TEXT[:end])
        roots.drawn()
        assert root.target_before.numpy() == pytest.approx(plain(pair, TEXT[: end - 1]).numpy(), abs=1e-4)
        assert root.draft_before.numpy() == pytest.approx(plain(pair, TEXT[: end - 1], draft=True).numpy(), abs=1e-4)
        assert root.draft_at.numpy() == pytest.approx(plain(pair, TEXT[:end], draft=True).numpy(), abs=1e-4)
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
