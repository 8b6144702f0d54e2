"""Edge cases and refused inputs of the lossless verifiers."""

import numpy as np
import pytest
import torch

from decoder.errors import ModelError
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import VERIFIERS
from decoder.verify.names import VERIFIER_NAMES
from tests.decoder.verify.lossless.row_by_row import VERIFY


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


def test_draws_keep_their_order_and_multiplicity() -> None:
    tree = TokenTree([9])
    tree.draw(0, [2, 1, 2], [-1.0, -1.0, -1.0], torch.tensor([0.2, 0.3, 0.5]))
    found = drawn_tree(tree)
    assert (found.children, found.drawn(0)) == (((1, 2, 1), (), ()), [2, 1, 2])
    assert [(place, child, owns) for place, child, owns in found.slots(0)] == [
        (0, 1, True),
        (1, 2, True),
        (2, 1, False),
    ]


def test_the_first_path_takes_the_first_draw_of_each_node() -> None:
    tree = TokenTree([9])
    tree.draw(0, [2, 1, 2], [-1.0, -1.0, -1.0], torch.tensor([0.2, 0.3, 0.5]))
    tree.draw(1, [0, 1], [-1.0, -1.0], torch.tensor([0.2, 0.3, 0.5]))
    assert drawn_tree(tree).first_path().children == ((1,), (3,), (), (), ())


def test_a_grown_tree_s_children_count_once() -> None:
    tree = TokenTree([9])
    tree.grow(0, [2, 1], [-0.5, -1.5])
    assert drawn_tree(tree).children == ((1, 2), (), ())
    assert not draft_rows(tree, torch.ones(3, 4)).any()


def test_draft_rows_are_those_of_the_draws() -> None:
    tree, row = TokenTree([9]), torch.tensor([0.2, 0.3, 0.5])
    tree.draw(0, [2], [-1.0], row)
    assert torch.equal(draft_rows(tree, torch.ones(2, 3)), torch.stack([row, torch.zeros(3)]))


def test_block_refuses_a_tree() -> None:
    tree = TokenTree([9])
    tree.draw(0, [2, 1], [-1.0, -1.0], torch.tensor([0.2, 0.3, 0.5]))
    with pytest.raises(ValueError, match="is not a chain"):
        VERIFIERS["block"].on_device(drawn_tree(tree), torch.ones(3, 3), torch.ones(3, 3), PhiloxGenerator(0))
