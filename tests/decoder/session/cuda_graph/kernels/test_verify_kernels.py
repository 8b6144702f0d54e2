"""The kernels see and accept what the plain functions do, and history learns the same bits; whole rounds with all
kernels write the same trees and texts as rounds that the host drives.
"""

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph import verify
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftPart
from decoder.session.cuda_graph.kernel_trial import Table, kernels
from decoder.session.cuda_graph.kernels import verify_tree
from decoder.session.cuda_graph.operators import PLAIN
from decoder.session.cuda_graph.static_shapes import BUCKETS, DEEPEST, bucket, levels
from decoder.session.cuda_graph.verify import Moves, TreeRows
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests.decoder.makers import PROMPT, TinyModels, graph_slots
from tests.decoder.session.cuda_graph.laid_out import CHAIN, laid_out, some_choices, some_tree
from tests.decoder.session.cuda_graph.matching import match, with_slots
from tests.decoder.session.cuda_graph.stub_kernels import exactly, tried_kernels

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


def check_path(states: Sequence[DeviceState], choices: list[int], nodes: int) -> Moves | None:
    """Commits by kernel and by plain function; all of both states must be equal. Returns the moves."""
    deepest, target = levels(nodes, DEEPEST), side(torch.float32)
    padded = torch.tensor(choices + [3] * (nodes - len(choices)))
    moves: list[Moves | None] = [
        accept(state, verify.tree_rows(target, state, nodes, deepest, SLOTS), padded, deepest)
        for accept, state in zip((verify_tree.accept_path, verify.accept_path), states, strict=True)
    ]
    for own, plain in zip(*(state._tensors() for state in states), strict=True):
        assert torch.equal(own, plain)
    found, right = moves
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
    check_rows(CHAIN, 1)


def test_places_of_several_blocks_are_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_tree, "COLUMNS", 32)
    check_rows(some_tree(3, 6), 27)


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 16, 33])
def test_the_same_paths_are_accepted_and_committed(nodes: int) -> None:
    for seed in range(4):
        tree = some_tree(seed, nodes)
        states = [laid_out(tree, [5] * seed + [tree.tokens[0]]) for _ in range(2)]
        check_path(states, some_choices(tree, seed), bucket(len(tree)))


def test_a_tree_of_the_largest_size_is_accepted_too() -> None:
    tree = some_tree(1, 200)
    moves = check_path([laid_out(tree, [1, tree.tokens[0]]) for _ in range(2)], some_choices(tree, 5), BUCKETS[-1])
    assert moves
    assert len(moves.target) == DEEPEST


@pytest.mark.parametrize(("window", "history"), [(3, True), (7, False), (63, True)])
def test_history_learns_the_same_bits(window: int, *, history: bool) -> None:
    luck = random.Random(window)
    rules = DynaTree(history=history, window=window, eta_d=1.3, eta_h=0.17, target_acceptance=0.3)
    states = [laid_out(some_tree(0, 2), [1, 2], rules.rule()) for _ in range(2)]
    for number in range(window + 4):
        tree = some_tree(number, 12)
        fresh = laid_out(tree, [1, tree.tokens[0]])
        for state in states:
            state.nodes.copy_(fresh.nodes)
            state.text.copy_(fresh.text)
            state.length.copy_(fresh.length)
        choices = some_choices(tree, number) if luck.random() < 0.8 else [0] * len(tree)
        check_path(states, choices, bucket(len(tree)))
    assert int(states[0].rounds) == window + 4
    moved = float(states[0].rule.growth.d0) != rules.d0
    assert moved == history


# Whole rounds

SMALL = DynaTree(d_max=3, d0=2, branching=(2, 2, 3), window=1)
RULES: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "bfs": SMALL,
    "best": replace(SMALL, selection="best", n_max=5),
}


@pytest.mark.parametrize(
    ("rules", "dtype", "sampling"),
    [
        ("ar", "float32", Sampling(1.0, 20, 0.9)),
        ("linear", "float64", Sampling()),
        ("bfs", "float32", Sampling(1.0)),
        ("best", "float64", Sampling(1.0, 20, 0.9)),
        ("best", "float32", Sampling()),
    ],
    ids=str,
)
def test_every_round_is_that_of_the_host(tiny_models: TinyModels, rules: str, dtype: str, sampling: Sampling) -> None:
    pair = tiny_models.pair("neox")
    engine = with_slots(tiny_models.loaded(pair, dtype)).sampled(3, Schedule(sampling))
    every: dict[str, Any] = {**kernels()}
    graph_slots(engine).operators = replace(PLAIN, **every)
    rounds = match(engine, tiny_models.prompt_tokens(pair, PROMPT), 6, RULES[rules])
    assert sum(len(outcome.committed) for outcome in rounds) == 6


def test_the_trial_finds_the_kernels_results_equal(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.session.cuda_graph.kernel_trial.relative_time", lambda *_: exactly(0.5))
    engine = with_slots(tiny_models.engine("neox"))
    monkeypatch.setattr("decoder.session.cuda_graph.kernel_trial.layer_kernels", dict)
    assert tried_kernels(engine.pair, graph_slots(engine), [RULES["best"]]).kernels == tuple(kernels())
