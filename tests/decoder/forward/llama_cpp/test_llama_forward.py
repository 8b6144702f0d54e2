"""llama.cpp as a forward form: tree nodes have the logits of their paths, and a committed path becomes text."""

import ctypes
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from decoder.errors import ConfigError, ModelError
from decoder.forward.llama_cpp import library as loading
from decoder.forward.llama_cpp.cache import TIMED_ROWS, parents_of
from decoder.forward.llama_cpp.context import Model
from decoder.forward.llama_cpp.drafted import TEXT, Sequences
from decoder.forward.llama_cpp.forward import SEQUENCES, LlamaForward
from decoder.forward.llama_cpp.library import CONTEXT_DEFAULTS, MODEL_DEFAULTS, RELEASE
from tests.decoder.llama_cpp_trees import SIXTEEN, path_to, plain, tree
from tests.gguf_pair import GgufPair, needs_llama_cpp

pytestmark = needs_llama_cpp
CPU = torch.device("cpu")
BEGINNING = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def small(gguf_pair: GgufPair) -> LlamaForward:
    return LlamaForward(Model(gguf_pair.draft()), 2, CPU, half=False)


def verified(forward: LlamaForward, parents: Sequence[int], tokens: Sequence[int]) -> float:
    """Largest difference of a tree's logits from those of plain decoding, relative to the largest logit."""
    cache = forward.new_cache(100)
    forward.read(cache, BEGINNING)
    visible, depths = tree(parents)
    logits = forward.forward(cache, tokens, [cache.length + depth for depth in depths], visible)
    worst = 0.0
    for node in range(len(parents)):
        expected = plain(forward, [*BEGINNING, *(tokens[each] for each in path_to(node, parents))])
        worst = max(worst, float((logits[node] - expected).abs().max() / expected.abs().max()))
    return worst


def test_a_tree_of_16_nodes_has_the_logits_of_plain_decoding(small: LlamaForward) -> None:
    assert verified(small, SIXTEEN, range(30, 46)) < 1e-4


def test_a_quantised_tree_agrees_within_the_rounding_of_its_products(gguf_pair: GgufPair) -> None:
    quantised = LlamaForward(Model(gguf_pair.draft("Q8_0")), 2, CPU, half=True)
    assert verified(quantised, SIXTEEN, range(30, 46)) < 5e-2


def test_more_leaves_than_sequences_are_right_too(small: LlamaForward) -> None:
    cache, count = small.new_cache(200), SEQUENCES + 20
    small.read(cache, BEGINNING)
    visible, depths = tree([-1, *[0] * count])
    logits = small.forward(cache, range(9, 10 + count), [4 + depth for depth in depths], visible)
    for node in (1, SEQUENCES, count):
        assert torch.allclose(logits[node], plain(small, [*BEGINNING, 9, 9 + node]), atol=1e-3)
    cache.keep([4, 5])
    assert torch.allclose(small.read(cache, [3]), plain(small, [*BEGINNING, 9, 10, 3]), atol=1e-3)


def test_a_row_that_a_pass_computes_again_has_its_logits_once(small: LlamaForward) -> None:
    cache, parents = small.new_cache(200), [-1, 0, 0, *[1, 2] * SEQUENCES]
    small.read(cache, BEGINNING)
    visible, depths = tree(parents)
    logits = small.forward(cache, range(9, 9 + len(parents)), [4 + depth for depth in depths], visible)
    assert len(logits) == len(parents)
    for node in (1, 2, SEQUENCES + 1, len(parents) - 1):
        path = [9 + each for each in path_to(node, parents)]
        assert torch.allclose(logits[node], plain(small, [*BEGINNING, *path]), atol=1e-3)


def test_a_tree_may_grow_level_by_level_and_a_late_sibling_may_come(small: LlamaForward) -> None:
    cache = small.new_cache(60)
    small.read(cache, BEGINNING)
    small.forward(cache, [20], [4], np.ones((1, 1), np.bool_))
    small.forward(cache, [21, 22], [5, 5], np.array([[1, 1, 0], [1, 0, 1]], np.bool_))
    small.forward(cache, [23], [6], np.array([[1, 1, 0, 1]], np.bool_))
    late = small.forward(cache, [24], [6], np.array([[1, 1, 0, 0, 1]], np.bool_))[0]
    assert torch.allclose(late, plain(small, [*BEGINNING, 20, 21, 24]), atol=1e-3)


def test_a_committed_path_is_text_and_other_rows_are_gone(small: LlamaForward) -> None:
    cache = small.new_cache(60)
    small.read(cache, BEGINNING)
    parents = [-1, 0, 0, 2, 2]
    visible, depths = tree(parents)
    for _ in range(3):
        first = cache.length
        small.forward(cache, range(40, 45), [first + depth for depth in depths], visible)
        cache.keep([first, first + 2])
        assert cache.length == cache.used == first + 2
    assert torch.allclose(small.read(cache, [9]), plain(small, [*BEGINNING, *[40, 42] * 3, 9]), atol=1e-3)


def test_a_cache_that_grows_keeps_text_and_drafted_rows(small: LlamaForward) -> None:
    cache, chain = small.new_cache(20), list(range(50, 80))
    small.read(cache, BEGINNING)
    small.forward(cache, chain, range(4, 34), np.tri(30, dtype=np.bool_))
    cache.reserve(900)
    cache.keep(range(4, 34))
    assert torch.allclose(small.read(cache, [9]), plain(small, [*BEGINNING, *chain, 9]), atol=1e-3)


def test_a_text_that_was_cut_goes_on_from_there(small: LlamaForward) -> None:
    cache = small.new_cache(60)
    small.read(cache, [*BEGINNING, 11, 12])
    small.forward(cache, [13, 14], [6, 6], np.eye(2, dtype=np.bool_))
    cache.cut(4)
    assert cache.used == 4
    assert torch.allclose(small.read(cache, [9]), plain(small, [*BEGINNING, 9]), atol=1e-3)


def test_a_cache_stands_at_a_length_for_timing(small: LlamaForward) -> None:
    cache = small.new_cache(700)
    for length, stands in ((40, 40), (10, 10), (600, TIMED_ROWS)):
        cache.assume(length)
        assert cache.length == stands


def test_rows_that_are_no_path_are_refused(small: LlamaForward) -> None:
    drafted = Sequences(4, 8)
    assert parents_of(np.array([[1, 0], [1, 1]], np.bool_), drafted) == [TEXT, 0]
    for wrong in ([[1, 0], [1, 0]], [[1, 1], [0, 1]]):
        with pytest.raises(ValueError, match="which do not form a path"):
            parents_of(np.array(wrong, np.bool_), drafted)
    with pytest.raises(ValueError, match="a mask of 1 columns"):
        parents_of(np.ones((2, 1), np.bool_), drafted)
    cache = small.new_cache(20)
    small.forward(cache, [1, 2], [0, 0], np.eye(2, dtype=np.bool_))
    with pytest.raises(ValueError, match="do not form a path from the text"):
        cache.keep([0, 1])
    with pytest.raises(ValueError, match="cannot move rows"):
        cache.place(0, [1])


def test_a_token_outside_of_the_vocabulary_never_reaches_the_library(small: LlamaForward) -> None:
    with pytest.raises(ValueError, match="tokens from 99999"):
        small.read(small.new_cache(4), [99999])


def test_another_release_or_none_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ConfigError, match="which is not installed; pip install"):
        loading.require_package()
    monkeypatch.setattr(metadata, "version", lambda _: "2026.9.11063")
    with pytest.raises(ConfigError, match=f"need xllamacpp {RELEASE}, but 2026.9.11063 is installed"):
        loading.require_package()


def test_other_layouts_are_refused() -> None:
    library = loading.library()
    params = library.context_default_params()
    assert not loading.differing(params, CONTEXT_DEFAULTS)
    assert not loading.differing(library.model_default_params(), MODEL_DEFAULTS)
    shifted = type(params).from_buffer_copy(bytes(ctypes.c_int32(7)) + bytes(params)[:-4])
    assert loading.differing(shifted, CONTEXT_DEFAULTS)["n_ctx"] == 7


def test_a_library_without_a_function_is_refused() -> None:
    spec = find_spec("array")
    assert spec
    assert spec.origin
    with pytest.raises(ModelError, match="cannot be used"):
        loading.Library(Path(spec.origin))
