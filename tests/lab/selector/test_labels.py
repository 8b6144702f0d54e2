"""Labels are expected tokens of a round of each shape, from draws that all shapes share."""

from collections import Counter

import numpy as np
import pytest

from decoder.draft.delayed_shape import DelayedTree
from decoder.selector.actions import ACTIONS, ONE_PATH, number
from decoder.verify.lossless.verifiers import VERIFIERS
from dynatui.lab.selector.labels import LABELLED
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
