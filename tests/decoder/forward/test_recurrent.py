"""Layers that keep a state: accepted rows enter it once, rejected rows never; drafted rows as root-to-leaf paths; what
a round computes, and what refuses states.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder import RunConfig
from decoder.errors import PairError
from decoder.forward.language_model import LanguageModel
from decoder.forward.recurrent.forward import RecurrentForward
from decoder.forward.recurrent.owners import FIELD, at_most
from decoder.forward.recurrent.states import NO_PARENT, StateCache, path_batch, path_to, with_parents
from decoder.session.protocol import Outcome
from decoder.tree import visibility
from tests import tiny
from tests.decoder.any_family import CONTEXT, PROMPT, counted, engine_of, rounds_of, whole_and_layers
from tests.decoder.fixed_tree import FORK, FORKED, PLACES
from tests.decoder.property_settings import examples
from tests.decoder.recurrent_families import FAMILIES, STEPWISE, target_of


@pytest.fixture(params=["lfm2", "mamba2", "qwen3_5_text"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return LanguageModel.of_module(target_of(request.param), request.param)


@torch.inference_mode()
def after_text(model: LanguageModel, text: list[int]) -> StateCache:
    cache = model.new_cache(CONTEXT)
    model.read(cache, text)
    assert isinstance(cache, StateCache)
    return cache


def begun(model: LanguageModel) -> StateCache:
    return after_text(model, PROMPT)


def test_states_cannot_go_back(model: LanguageModel) -> None:
    cache = begun(model)
    with pytest.raises(PairError, match="makes the draft read tokens again"):
        cache.cut(19)
    cache.cut(20)
    assert cache.length == 20


def test_a_cache_counts_the_bytes_of_its_states(model: LanguageModel) -> None:
    cache = begun(model)
    assert cache.nbytes >= sum(state.nbytes for state in cache.states.values()) > 0


# Drafted rows as paths

PARENTS = [NO_PARENT, 0, 0, 1, 1, 2, 5, 3]


def mask(parents: list[int], first: int = 0) -> np.ndarray:
    """Mask of the rows from `first` to the last."""
    return visibility([path_to(row, parents) for row in range(first, len(parents))], len(parents))


@examples(100)
@given(st.lists(st.integers(0, 99), max_size=12), st.integers(0, 12))
def test_parents_and_places_follow_from_the_masks_of_trees_that_come_in_two_passes(luck: list[int], split: int) -> None:
    """Rows may begin several trees; paths without a new row are not computed again."""
    parents = [number % (row + 1) - 1 for row, number in enumerate([0, *luck])]
    first = min(split, len(parents) - 1)
    assert with_parents(parents[:first], mask(parents, first)) == parents
    batch = path_batch(parents, first)
    new = range(first, len(parents))
    assert [path_to(path[-1], parents) for path in batch.paths] == batch.paths
    assert all(path[-1] in new for path in batch.paths)
    assert batch.padded.flatten()[batch.places].tolist() == [*new]


def test_paths_end_at_leaves_and_are_padded_at_their_end() -> None:
    batch = path_batch(PARENTS, 0)
    assert batch.paths == [[0, 1, 4], [0, 2, 5, 6], [0, 1, 3, 7]]
    assert batch.padded.tolist() == [[0, 1, 4, 4], [0, 2, 5, 6], [0, 1, 3, 7]]
    assert batch.unpadded == {(0, 2, 5, 6): 1, (0, 1, 3, 7): 2}


def test_rows_that_the_mask_leaves_out_and_committed_rows_are_visible() -> None:
    assert with_parents([NO_PARENT, 0], np.tri(2, dtype=np.bool_)) == [NO_PARENT, 0, 1, 2]
    assert with_parents([], np.hstack([np.ones((2, 3), np.bool_), np.tri(2, dtype=np.bool_)])) == [NO_PARENT, 0]
    with pytest.raises(ValueError, match="the whole text"):
        with_parents([], np.array([[False, True]]))


@pytest.mark.parametrize("hidden", [(3, 1), (3, 3), (7, 0)])
def test_a_mask_without_a_row_of_a_path_is_refused(hidden: tuple[int, int]) -> None:
    visible = mask(PARENTS).copy()
    visible[hidden] = False
    with pytest.raises(ValueError, match="rows of one path"):
        with_parents([], visible)


# Chunks of scans

SCANS = {
    "qwen3_next": "torch_chunk_gated_delta_rule",
    "kimi_linear": "chunk_kimi_delta_attention",
    "mamba2": "mamba2_chunk_scan",
}


def sizes_of_chunks(module: Any, scan: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each later scan of a module adds its chunk size."""
    home, sizes = sys.modules[type(module).__module__], list[int]()
    right = getattr(home, scan)

    def noted(*given: Any, **named: Any) -> Any:
        sizes.append(named[FIELD])
        return right(*given, **named)

    monkeypatch.setattr(home, scan, noted)
    return sizes


@torch.inference_mode()
@pytest.mark.parametrize("family", SCANS)
def test_a_scan_of_a_path_is_not_padded(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = target_of(family, **({"chunk_size": 16} if family == "mamba2" else {}))
    form = RecurrentForward(module)
    cache = form.new_cache(CONTEXT)
    form.read(cache, PROMPT)
    assert not form.stepwise  # determined by additional passes, which must not be counted below
    sizes = sizes_of_chunks(module, SCANS[family], monkeypatch)
    form.forward(cache, FORKED, PLACES, FORK)
    assert set(sizes) == {3}
    sizes.clear()
    cache.keep([20, 21])
    assert set(sizes) == {2}
    sizes.clear()
    form.read(cache, PROMPT[:15])
    assert set(sizes) == {15}


@pytest.mark.parametrize(("family", "size"), [("qwen3_next", 64), ("kimi_linear", 64), ("mamba2", 4), ("bamba", 4)])
def test_the_usual_size_is_known(family: str, size: int) -> None:
    chunks = RecurrentForward(target_of(family)).chunks
    assert {each.size for each in chunks} == {size}


@pytest.mark.parametrize("family", ["lfm2", "mamba", "minimax"])
def test_a_module_without_chunks_has_none(family: str) -> None:
    assert not RecurrentForward(target_of(family)).chunks


@pytest.mark.parametrize(("most", "within"), [(2, 2), (5, 4)])
def test_chunks_are_not_made_longer_and_the_usual_size_comes_back(most: int, within: int) -> None:
    (first, *_) = chunks = RecurrentForward(target_of("mamba2")).chunks
    module: Any = first.module
    with at_most(most, chunks):
        assert module.chunk_size == within
    assert module.chunk_size == 4


# Passes

COUNT = 60


@pytest.mark.parametrize("family", FAMILIES)
def test_families_whose_scan_ignores_a_state_are_called_token_by_token(family: str) -> None:
    assert RecurrentForward(target_of(family)).stepwise == (family in STEPWISE)


def calls_by_round(family: str, method: str) -> Iterator[tuple[Outcome, set[int], set[int]]]:
    """Each round with its numbers of calls of the target and its layers, and of the modules that own states."""
    module = target_of(family)
    engine = engine_of(module, tiny.kin(module, seed=2, noise=0.02))
    form: Any = engine.pair.target.runs_by
    _ = form.stepwise
    owners = {f"owner {number}": owner.module for number, owner in enumerate(form.owners)}
    others = whole_and_layers(module)
    with counted(others | owners) as calls:
        before = Counter(dict.fromkeys(others | owners, 1))  # the first round also reads the prompt
        for outcome in rounds_of(engine, PROMPT, RunConfig((method,), COUNT)):
            own = {name: calls[name] - before[name] for name in before}
            before = calls.copy()
            yield outcome, {own[name] for name in others}, {own[name] for name in owners}


@pytest.mark.parametrize("family", ["qwen3_5_text", "falcon_h1", "lfm2", "mamba2"])
def test_a_round_is_one_pass_and_at_most_one_replay_of_the_owners(family: str) -> None:
    """No replay is needed if the accepted path is one of the tree's longest, whose states are known."""
    replays = 0
    for outcome, layers, owners in calls_by_round(family, "dynatree"):
        kept = len([0, *outcome.accepted][: len(outcome.committed)])
        replayed = kept <= max(outcome.tree.depths)
        assert layers == {1}
        assert owners == {1 + replayed}
        replays += replayed
    assert replays


@pytest.mark.parametrize("family", ["lfm2", "mamba2"])
def test_a_round_without_a_draft_replays_nothing(family: str) -> None:
    assert all(layers == owners == {1} for _, layers, owners in calls_by_round(family, "ar"))
