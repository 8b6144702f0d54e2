"""Emitted texts follow the target's law exactly: all trees and outcomes are enumerated, so no test is random."""

from functools import partial

import pytest
import torch

from decoder.draft.delayed_shape import DelayedTree
from decoder.forward.fitted import Fit
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Sampling
from decoder.verify.lossless.batched.device_rows import VerifyOnDevice
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Rows
from decoder.verify.lossless.top_down import Accepted
from decoder.verify.lossless.verifiers import VERIFIERS
from tests.decoder.verify.lossless.enumeration import KINDS, SHAPES, VOCABULARY, Models, delayed_trees, emitted, models
from tests.decoder.verify.lossless.row_by_row import VERIFY

EXACT = 1e-10


def fitting(shape: DelayedTree) -> list[str]:
    return [name for name in VERIFIERS if shape.k == 1 or name != "block"]


def on_tensors(
    verify: VerifyOnDevice, tree: DrawnTree, target_probs: Rows, draft_probs: Rows, generator: RandomGenerator
) -> Accepted:
    return verify(tree, torch.tensor(target_probs), torch.tensor(draft_probs), generator)


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
    trees = delayed_trees(shape, pair)
    found = {name: emitted(VERIFY[name], trees, pair, shape.depth).distance for name in fitting(shape)}
    assert max(found.values()) < EXACT, found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [DelayedTree(1, 0, 2), DelayedTree(2, 0, 1), DelayedTree(3, 0, 1)], ids=str)
def test_so_does_every_verifier_on_tensors(shape: DelayedTree, kind: str) -> None:
    pair = models(kind, shape.depth)
    trees = delayed_trees(shape, pair)
    found = {
        name: emitted(partial(on_tensors, VERIFIERS[name].on_device), trees, pair, shape.depth).distance
        for name in fitting(shape)
    }
    assert max(found.values()) < EXACT, found


def test_so_does_every_verifier_on_tensors_with_trees_of_two_levels() -> None:
    shape = DelayedTree(2, 0, 2)
    pair = models("generic", shape.depth)
    trees = delayed_trees(shape, pair)
    found = {
        name: emitted(partial(on_tensors, VERIFIERS[name].on_device), trees, pair, shape.depth).distance
        for name in fitting(shape)
    }
    assert max(found.values()) < EXACT, found


@pytest.mark.parametrize("shape", [DelayedTree(1, 0, 2), DelayedTree(2, 0, 1)], ids=str)
def test_so_it_does_for_a_target_with_more_tokens_than_its_draft(shape: DelayedTree) -> None:
    """The rows are those of the engine: the draft's logits over two tokens, among the target's three."""
    conversion, both = Fit(known=2, width=VOCABULARY, instead=0), models("generic", shape.depth)
    own = {text: torch.tensor(row[:2]).log()[None] for text, row in both.draft.items()}
    rows = {text: probabilities(conversion.logits(row), [Sampling(0.9)])[0] for text, row in own.items()}
    assert all(float(row[2]) == 0 < both.target[text][2] for text, row in rows.items())
    draft = {text: row.double().numpy() / float(row.double().sum()) for text, row in rows.items()}
    pair = Models(both.target, draft)
    trees = delayed_trees(shape, pair)
    found = {name: emitted(VERIFY[name], trees, pair, shape.depth).distance for name in fitting(shape)}
    assert max(found.values()) < EXACT, found


@pytest.mark.parametrize("kind", ["generic", "close", "target zeros", "draft zeros"])
def test_no_verifier_of_one_path_accepts_more_than_block(kind: str) -> None:
    shape = DelayedTree(1, 0, 3)
    pair = models(kind, shape.depth)
    trees = delayed_trees(shape, pair)
    found = {name: emitted(verify, trees, pair, shape.depth).tokens for name, verify in VERIFY.items()}
    assert found["block"] == pytest.approx(found["traversal"], abs=1e-14)
    assert found["block"] > max(found[name] for name in VERIFIERS if name not in {"block", "traversal"}) + 1e-6
