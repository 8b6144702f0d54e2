"""Recurrent models in llama.cpp: tree nodes have the logits of their paths, and a text continues after any draft."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.llama_cpp.cache import LlamaCache
from decoder.forward.llama_cpp.context import Context, Model
from decoder.forward.llama_cpp.drafted import STATES
from decoder.forward.llama_cpp.forward import LlamaForward
from tests.decoder.llama_cpp_trees import SIXTEEN, path_to, plain, tree
from tests.gguf_pair import GgufStates, needs_llama_cpp
from tests.gguf_states import LAYERS

pytestmark = needs_llama_cpp
CPU = torch.device("cpu")
BEGINNING = [5, 6, 7, 8, 9, 10]


@pytest.fixture(scope="module", params=list(LAYERS))
def model(request: pytest.FixtureRequest, gguf_states: GgufStates) -> LlamaForward:
    return LlamaForward(Model(gguf_states.target(request.param)), 2, CPU, half=False)


@pytest.fixture(scope="module")
def hybrid(gguf_states: GgufStates) -> LlamaForward:
    return LlamaForward(Model(gguf_states.target("falcon-h1")), 2, CPU, half=False)


def begun(forward: LlamaForward, capacity: int = 100) -> LlamaCache:
    cache = forward.new_cache(capacity)
    forward.read(cache, BEGINNING)
    return cache


def draft(forward: LlamaForward, cache: LlamaCache, parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
    visible, depths = tree(parents)
    return forward.forward(cache, tokens, [cache.length + depth for depth in depths], visible)


def same(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max()) < 1e-4 * float(other.abs().max())


def test_a_tree_of_16_nodes_has_the_logits_of_plain_decoding(model: LlamaForward) -> None:
    logits = draft(model, begun(model), SIXTEEN, range(30, 46))
    for node in range(16):
        path = [30 + each for each in path_to(node, SIXTEEN)]
        assert same(logits[node], plain(model, [*BEGINNING, *path]))


@pytest.mark.parametrize("parts", [(0, 0, 0), (1, 3, 2), (5, 5, 5), (3, 5, 2), (5, 2, 5)], ids="{} rows".format)
def test_a_text_goes_on_after_parts_of_chains(model: LlamaForward, parts: Sequence[int]) -> None:
    cache, text = begun(model), list(BEGINNING)
    for start, kept in zip((20, 30, 40), parts, strict=True):
        chain = range(start, start + 5)
        draft(model, cache, range(-1, 4), chain)
        cache.keep(range(cache.length, cache.length + kept))
        text += chain[:kept]
        assert cache.length == cache.used == len(text)
    assert same(model.read(cache, [9]), plain(model, [*text, 9]))


def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each later pass of llama.cpp adds its number of rows."""
    computed, decode = list[int](), Context.decode

    def counted(context: Context, tokens: Sequence[int], *given: Any) -> NDArray[np.float32]:
        computed.append(len(tokens))
        return decode(context, tokens, *given)

    monkeypatch.setattr(Context, "decode", counted)
    return computed


def test_tokens_whose_state_is_lost_are_computed_with_the_next_chain_until_they_are_many(
    hybrid: LlamaForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, text = begun(hybrid), list(BEGINNING)
    computed = passes(monkeypatch)
    for start in range(20, 80, 10):
        chain = range(start, start + 5)
        logits = draft(hybrid, cache, range(-1, 4), chain)
        cache.keep(range(cache.length, cache.length + 4))
        text += chain[:4]
    assert computed == [5, 4 + 5, 8 + 5, 12 + 5, 16 + 5, 20, 5]
    draft(hybrid, cache, [-1, 0, 0], [90, 91, 92])
    assert computed[7:] == [4, 4], "before a tree they are read"
    monkeypatch.undo()
    assert same(logits[4], plain(hybrid, [*text[:-4], *chain]))


def test_a_path_that_is_kept_as_a_whole_needs_no_pass(hybrid: LlamaForward, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, computed = begun(hybrid), passes(monkeypatch)
    draft(hybrid, cache, [-1, 0, 0], [20, 21, 22])
    cache.keep([6, 8])
    hybrid.read(cache, [9])
    assert computed == [4, 1]


def test_a_text_goes_on_after_a_path_of_a_tree(model: LlamaForward) -> None:
    cache, text = begun(model), list(BEGINNING)
    for node in (15, 6, 10):
        draft(model, cache, SIXTEEN, range(30, 46))
        path = path_to(node, SIXTEEN)
        cache.keep([cache.length + each for each in path])
        text += [30 + each for each in path]
    fork = draft(model, cache, [-1, 0, 0], [50, 51, 52])
    assert same(fork[2], plain(model, [*text, 50, 52]))


def test_a_tree_may_grow_level_by_level_and_a_late_sibling_may_come(model: LlamaForward) -> None:
    cache = begun(model)
    model.forward(cache, [20], [6], np.ones((1, 1), np.bool_))
    model.forward(cache, [21, 22], [7, 7], np.array([[1, 1, 0], [1, 0, 1]], np.bool_))
    model.forward(cache, [23], [8], np.array([[1, 1, 0, 1]], np.bool_))
    late = model.forward(cache, [24], [8], np.array([[1, 1, 0, 0, 1]], np.bool_))[0]
    assert same(late, plain(model, [*BEGINNING, 20, 21, 24]))
    cache.keep([6, 7, 9])
    assert same(model.read(cache, [3]), plain(model, [*BEGINNING, 20, 21, 23, 3]))


def test_more_leaves_than_sequences_are_right_too(model: LlamaForward) -> None:
    count = 2 * STATES
    cache = begun(model)
    logits = draft(model, cache, [-1, *[0] * count, 1, count], range(9, 12 + count))
    for node in (1, STATES, count):
        assert same(logits[node], plain(model, [*BEGINNING, 9, 9 + node]))
    for node, parent in ((count + 1, 1), (count + 2, count)):
        assert same(logits[node], plain(model, [*BEGINNING, 9, 9 + parent, 9 + node]))


def test_a_text_that_was_cut_goes_on_from_there(model: LlamaForward) -> None:
    cache, text = begun(model), list(BEGINNING)
    for length in (4, 5, 5, 2, 3, 0):
        model.read(cache, [11, 12, 13])
        draft(model, cache, [-1, 0], [13, 14])
        text = [*text, 11, 12, 13][:length]
        cache.cut(length)
        assert cache.length == cache.used == length
        assert same(draft(model, cache, [-1], [9])[0], plain(model, [*text, 9]))


def test_a_text_that_is_cut_again_and_again_is_read_from_the_mark_on(
    hybrid: LlamaForward, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = begun(hybrid)
    hybrid.read(cache, range(100, 140))
    computed = passes(monkeypatch)
    for earlier, length in pairwise((0, 44, 45, 47)):
        cache.cut(length)
        assert sum(computed) == length - earlier
        hybrid.read(cache, [50, 51, 52])
        computed.clear()
    assert same(hybrid.read(cache, [9]), plain(hybrid, [*BEGINNING, *range(100, 138), 50, 50, 51, 50, 51, 52, 9]))


def test_a_cache_that_grows_keeps_text_and_drafted_rows(model: LlamaForward) -> None:
    cache, chain = begun(model, 20), list(range(50, 80))
    draft(model, cache, range(-1, 29), chain)
    cache.reserve(900)
    cache.keep(range(6, 36))
    draft(model, cache, [-1, 0], [40, 41])
    cache.keep([36])
    assert same(model.read(cache, [9]), plain(model, [*BEGINNING, *chain, 40, 9]))


def test_a_tree_whose_paths_take_more_rows_than_the_cache_has_room_for_moves_to_a_larger_one(
    hybrid: LlamaForward,
) -> None:
    cache, parents = begun(hybrid, 60), [*range(-1, 49), *[49] * 12]
    logits = draft(hybrid, cache, parents, range(100, 162))
    for node in (49, 50, 61):
        assert same(logits[node], plain(hybrid, [*BEGINNING, *(100 + each for each in path_to(node, parents))]))


def test_a_text_that_was_cut_may_grow_and_be_cut_again(model: LlamaForward) -> None:
    cache = begun(model, 20)
    cache.cut(4)
    model.read(cache, [11, 12])
    cache.reserve(900)
    model.read(cache, [13])
    cache.cut(5)
    assert same(model.read(cache, [9]), plain(model, [*BEGINNING[:4], 11, 9]))


def test_a_context_that_another_text_used_begins_anew(model: LlamaForward) -> None:
    for _ in range(2):
        cache = begun(model)
        draft(model, cache, SIXTEEN, range(30, 46))
        del cache
    assert same(model.read(begun(model), [9]), plain(model, [*BEGINNING, 9]))


def test_a_cache_stands_at_a_length_for_timing(hybrid: LlamaForward) -> None:
    cache = hybrid.new_cache(100)
    for length in (40, 10, 10, 60):
        cache.assume(length)
        assert cache.length == length


def test_a_quantised_tree_agrees_within_the_rounding_of_its_products(gguf_states: GgufStates) -> None:
    quantised = LlamaForward(Model(gguf_states.target("mamba2", "Q8_0")), 2, CPU, half=True)
    logits = draft(quantised, begun(quantised), SIXTEEN, range(30, 46))
    expected = plain(quantised, [*BEGINNING, *(30 + each for each in path_to(15, SIXTEEN))])
    assert float((logits[15] - expected).abs().max()) < 5e-2 * float(expected.abs().max())
