"""The kernels see and accept what the plain functions do, and history learns the same bits."""

import random
from dataclasses import fields

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.methods.dynatree import DynaTree
from decoder.session.cuda_graph import verify
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftPart
from decoder.session.cuda_graph.kernel_trial import Table
from decoder.session.cuda_graph.kernels import verify_tree
from decoder.session.cuda_graph.static_shapes import BUCKETS, DEEPEST, bucket, levels
from decoder.session.cuda_graph.verify import Moves, TreeRows
from decoder.tree import TokenTree
from tests.decoder.session.cuda_graph.laid_out import laid_out, some_choices, some_tree

pytestmark = pytest.mark.usefixtures("by_interpreter")
SLOTS = 512


def side(dtype: torch.dtype) -> DraftPart:
    form = Table(torch.zeros((1, 7), dtype=dtype))
    return DraftPart(form, form.new_store(600), 7, 500)


def check_rows(tree: TokenTree, length: int, dtype: torch.dtype = torch.float32) -> None:
    text = [*range(length - 1), tree.tokens[0]]
    sizes = bucket(len(tree)), levels(bucket(len(tree)), DEEPEST), SLOTS
    target, state = side(dtype), laid_out(tree, text)
    plain, found = (rows(target, state, *sizes) for rows in (verify.tree_rows, verify_tree.tree_rows))
    for name in (field.name for field in fields(TreeRows)):
        right, own = getattr(plain, name), getattr(found, name)
        assert own.dtype == right.dtype, name
        assert torch.equal(own, right), name


def check_path(state: DeviceState, other: DeviceState, choices: list[int], nodes: int) -> Moves | None:
    """Commits by kernel and by plain function; all of both states must be equal. Returns the moves."""
    deepest, target = levels(nodes, DEEPEST), side(torch.float32)
    padded = torch.tensor(choices + [3] * (nodes - len(choices)))
    rows = [verify.tree_rows(target, each, nodes, deepest, SLOTS) for each in (state, other)]
    found: Moves | None = verify_tree.accept_path(state, rows[0], padded, deepest)
    right = verify.accept_path(other, rows[1], padded, deepest)
    for own, plain in zip(state._tensors(), other._tensors(), strict=True):
        assert torch.equal(own, plain)
    assert (found is None) == (right is None)
    if found and right:
        assert torch.equal(found.target, right.target)
        assert torch.equal(found.draft, right.draft)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("nodes", BUCKETS[:-2])
def test_each_row_sees_the_text_its_ancestors_and_itself(nodes: int, dtype: torch.dtype) -> None:
    check_rows(some_tree(nodes, nodes), 1 + 3 * nodes, dtype)


def test_a_chain_s_rows_see_all_rows_before_them() -> None:
    chain = TokenTree([0])
    for node in range(DEEPEST):
        chain.add(node, 1, -0.1)
    check_rows(chain, 1)


def test_places_of_several_blocks_are_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_tree, "COLUMNS", 32)
    check_rows(some_tree(3, 6), 27)


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 16, 33])
def test_the_same_paths_are_accepted_and_committed(nodes: int) -> None:
    for seed in range(4):
        tree = some_tree(seed, nodes)
        states = [laid_out(tree, [5] * seed + [tree.tokens[0]]) for _ in range(2)]
        check_path(states[0], states[1], some_choices(tree, seed), bucket(len(tree)))


def test_a_tree_of_the_largest_size_is_accepted_too() -> None:
    tree = some_tree(1, 200)
    states = [laid_out(tree, [1, tree.tokens[0]]) for _ in range(2)]
    moves = check_path(states[0], states[1], some_choices(tree, 5), BUCKETS[-1])
    assert moves
    assert len(moves.target) == DEEPEST


@pytest.mark.parametrize(("window", "history"), [(1, True), (3, True), (7, False), (63, True)])
def test_history_learns_the_same_bits(window: int, *, history: bool) -> None:
    luck = random.Random(window)
    rules = DynaTree(history=history, window=window, eta_d=1.3, eta_h=0.17, target_acceptance=0.3)
    states = [laid_out(some_tree(0, 2), [1, 2], rules.rule()) for _ in range(2)]
    for number in range(window + 8):
        tree = some_tree(number, 12)
        for state in states:
            fresh = laid_out(tree, [1, tree.tokens[0]])
            state.nodes.copy_(fresh.nodes)
            state.text.copy_(fresh.text)
            state.length.copy_(fresh.length)
        choices = some_choices(tree, number) if luck.random() < 0.8 else [0] * len(tree)
        check_path(states[0], states[1], choices, bucket(len(tree)))
    assert int(states[0].rounds) == window + 8
    moved = float(states[0].rule.growth.d0) != rules.d0
    assert moved == history
