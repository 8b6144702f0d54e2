"""llama.cpp as a forward form, of models with and without states: tree nodes have the logits of their paths, and a text
continues after any draft.
"""

from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoder.errors import ConfigError, ModelError
from decoder.forward.llama_cpp import library as loading
from decoder.forward.llama_cpp.context import Context, LlamaModel
from decoder.forward.llama_cpp.drafted import TEXT, Sequences
from decoder.forward.llama_cpp.forward import SEQUENCES, TIMED_ROWS, LlamaCache, LlamaForward, parents_of
from decoder.forward.llama_cpp.library import RELEASE
from tests.decoder.llama_cpp_trees import SIXTEEN, plain, tree
from tests.decoder.random_trees import path
from tests.gguf_pair import LAYERS, GgufPair, GgufStates, needs_llama_cpp

pytestmark = needs_llama_cpp
CPU = torch.device("cpu")
BEGINNING = [5, 6, 7, 8, 9, 10]
ROWS = "without states"


def form(path: Path, *, half: bool = False) -> LlamaForward:
    return LlamaForward(LlamaModel(path), 2, CPU, half=half)


@pytest.fixture(scope="module", params=[ROWS, *LAYERS])
def model(request: pytest.FixtureRequest, gguf_pair: GgufPair, gguf_states: GgufStates) -> LlamaForward:
    return form(gguf_pair.draft() if request.param == ROWS else gguf_states.target(request.param))


@pytest.fixture(scope="module")
def rows(gguf_pair: GgufPair) -> LlamaForward:
    return form(gguf_pair.draft())


@pytest.fixture(scope="module")
def hybrid(gguf_states: GgufStates) -> LlamaForward:
    return form(gguf_states.target("falcon-h1"))


def begun(forward: LlamaForward, capacity: int = 100) -> LlamaCache:
    cache = forward.new_cache(capacity)
    forward.read(cache, BEGINNING)
    return cache


def draft(forward: LlamaForward, cache: LlamaCache, parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
    visible, depths = tree(parents)
    return forward.forward(cache, tokens, [cache.length + depth for depth in depths], visible)


def same(one: Tensor, other: Tensor, tolerance: float = 1e-4) -> bool:
    return float((one - other).abs().max()) < tolerance * float(other.abs().max())


def of_path(forward: LlamaForward, parents: Sequence[int], node: int, first: int = 30) -> Tensor:
    """Logits of a node's path as plain text; `first` is the root's token, and each further node's is one more."""
    return plain(forward, [*BEGINNING, *(first + each for each in path(parents, node))])


def test_a_tree_of_16_nodes_has_the_logits_of_plain_decoding(model: LlamaForward) -> None:
    logits = draft(model, begun(model), SIXTEEN, range(30, 46))
    for node in range(16):
        assert same(logits[node], of_path(model, SIXTEEN, node))


@pytest.mark.parametrize("states", [False, True])
def test_a_quantised_tree_agrees_within_the_rounding_of_its_products(
    gguf_pair: GgufPair, gguf_states: GgufStates, *, states: bool
) -> None:
    quantised = form(gguf_states.target("mamba2", "Q8_0") if states else gguf_pair.draft("Q8_0"), half=True)
    logits = draft(quantised, begun(quantised), SIXTEEN, range(30, 46))
    for node in [15] if states else range(16):
        assert same(logits[node], of_path(quantised, SIXTEEN, node), 5e-2)


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


def test_a_text_goes_on_after_a_path_of_a_tree(model: LlamaForward) -> None:
    cache, text = begun(model), list(BEGINNING)
    for node in (15, 6, 10):
        draft(model, cache, SIXTEEN, range(30, 46))
        nodes = path(SIXTEEN, node)
        cache.keep([cache.length + each for each in nodes])
        text += [30 + each for each in nodes]
        assert cache.length == cache.used == len(text)
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
    cache, count = begun(model, 200), SEQUENCES + 20
    parents = [-1, *[0] * count, 1, count]
    logits = draft(model, cache, parents, range(9, 12 + count))
    for node in (1, SEQUENCES, count, count + 1, count + 2):
        assert same(logits[node], of_path(model, parents, node, 9))
    cache.keep([6, 7])
    assert same(model.read(cache, [3]), plain(model, [*BEGINNING, 9, 10, 3]))


def test_a_row_that_a_pass_computes_again_has_its_logits_once(rows: LlamaForward) -> None:
    parents = [-1, 0, 0, *[1, 2] * SEQUENCES]
    logits = draft(rows, begun(rows, 200), parents, range(9, 9 + len(parents)))
    assert len(logits) == len(parents)
    for node in (1, 2, SEQUENCES + 1, len(parents) - 1):
        assert same(logits[node], of_path(rows, parents, node, 9))


def test_a_text_that_was_cut_goes_on_from_there(model: LlamaForward) -> None:
    cache, text = begun(model), list(BEGINNING)
    for length in (4, 5, 5, 2, 3, 0):
        model.read(cache, [11, 12, 13])
        draft(model, cache, [-1, 0], [13, 14])
        text = [*text, 11, 12, 13][:length]
        cache.cut(length)
        assert cache.length == cache.used == length
        assert same(draft(model, cache, [-1], [9])[0], plain(model, [*text, 9]))


def test_a_cache_that_grows_keeps_text_and_drafted_rows(model: LlamaForward) -> None:
    cache, chain = begun(model, 20), list(range(50, 80))
    draft(model, cache, range(-1, 29), chain)
    cache.reserve(900)
    cache.keep(range(6, 36))
    draft(model, cache, [-1, 0], [40, 41])
    cache.keep([36])
    assert same(model.read(cache, [9]), plain(model, [*BEGINNING, *chain, 40, 9]))


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


@pytest.mark.parametrize("kind", ["rows", "hybrid"])
def test_a_cache_stands_at_a_length_for_timing(kind: str, request: pytest.FixtureRequest) -> None:
    cache = request.getfixturevalue(kind).new_cache(700)
    for length in (40, 10, 10, 600):
        cache.assume(length)
        assert cache.length == min(length, TIMED_ROWS)


# Passes of models with states


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


def test_a_tree_whose_paths_take_more_rows_than_the_cache_has_room_for_moves_to_a_larger_one(
    hybrid: LlamaForward,
) -> None:
    cache, parents = begun(hybrid, 60), [*range(-1, 49), *[49] * 12]
    logits = draft(hybrid, cache, parents, range(100, 162))
    for node in (49, 50, 61):
        assert same(logits[node], of_path(hybrid, parents, node, 100))


# Refusals


def test_rows_that_are_no_path_are_refused(rows: LlamaForward) -> None:
    drafted = Sequences(4, 8)
    assert parents_of(np.array([[1, 0], [1, 1]], np.bool_), drafted) == [TEXT, 0]
    for wrong in ([[1, 0], [1, 0]], [[1, 1], [0, 1]]):
        with pytest.raises(ValueError, match="which do not form a path"):
            parents_of(np.array(wrong, np.bool_), drafted)
    with pytest.raises(ValueError, match="a mask of 1 columns"):
        parents_of(np.ones((2, 1), np.bool_), drafted)
    cache = rows.new_cache(20)
    rows.forward(cache, [1, 2], [0, 0], np.eye(2, dtype=np.bool_))
    with pytest.raises(ValueError, match="do not form a path from the text"):
        cache.keep([0, 1])
    with pytest.raises(ValueError, match="cannot move rows"):
        cache.place(0, [1])


def test_a_token_outside_of_the_vocabulary_never_reaches_the_library(rows: LlamaForward) -> None:
    with pytest.raises(ValueError, match="tokens from 99999"):
        rows.read(rows.new_cache(4), [99999])


def test_another_release_or_none_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ConfigError, match="which is not installed; pip install"):
        loading.require_package()
    monkeypatch.setattr(metadata, "version", lambda _: "2026.9.11063")
    with pytest.raises(ConfigError, match=f"need xllamacpp {RELEASE}, but 2026.9.11063 is installed"):
        loading.require_package()


def test_a_library_without_a_function_is_refused() -> None:
    spec = find_spec("array")
    assert spec
    assert spec.origin
    with pytest.raises(ModelError, match="cannot be used"):
        loading.LlamaLibrary(Path(spec.origin))
