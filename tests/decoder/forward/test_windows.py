"""Windows by position: nodes of one depth see equally far back, regardless of the order of their cache rows."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import AutoConfig, MistralConfig

from decoder.forward.windows import (
    Windows,
    attention_types,
    by_layers,
    cached,
    chunked,
    first_seen,
    layer_types,
    sliding,
    windows_of,
)


def positions(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


class Config(SimpleNamespace):
    """A configuration of a family that may have a window in all layers."""

    def __init__(self, sliding_window: int | None = None, **fields: Any) -> None:
        super().__init__(sliding_window=sliding_window, **fields)


def config(**fields: Any) -> Config:
    return Config(**{"max_position_embeddings": 64, "num_hidden_layers": 2} | fields)


def test_a_sliding_window_ends_with_the_query_and_counts_it() -> None:
    seen = sliding(positions(4, 5), positions(0, 1, 2, 3, 4, 5), 3)
    assert seen[0, :5].tolist() == [False, False, True, True, True]
    assert seen[1].tolist() == [False, False, False, True, True, True]


def test_a_chunk_begins_anew_after_its_size() -> None:
    seen = chunked(positions(3, 4, 5), positions(2, 3, 4, 5), 4)
    assert seen.tolist() == [[True, True, False, False], [False, False, True, True], [False, False, True, True]]


def test_siblings_see_equally_far_back() -> None:
    places = positions(0, 1, 2, 3, 3, 3)
    mask = sliding(places[3:], places, 2)
    assert mask[0].tolist() == mask[1].tolist() == mask[2].tolist() == [False, False, True, True, True, True]


def test_each_layer_type_has_its_own_mask_within_that_of_the_tree() -> None:
    seen = np.array([[True, True, True, False], [True, True, False, True]])
    windows = Windows({"sliding_attention": 2}, ("full_attention", "sliding_attention"))
    masks = windows.masks(seen, positions(2, 2), positions(0, 1, 2, 2))
    assert masks["full_attention"].tolist() == seen.tolist()
    assert masks["sliding_attention"].tolist() == [[False, True, True, False], [False, True, False, True]]


def test_attention_reads_from_the_first_key_that_any_query_sees() -> None:
    assert first_seen(np.array([[False, False, True], [False, True, True]])) == 1
    assert first_seen(np.ones((2, 3), dtype=np.bool_)) == 0


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({}, {}),
        ({"sliding_window": 8}, {"sliding_attention": 8}),
        ({"sliding_window": 8, "use_sliding_window": False}, {}),
        ({"sliding_window": 64}, {}),
        ({"sliding_window": 8, "layer_types": ["full_attention"] * 2}, {}),
        ({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}, {"sliding_attention": 8}),
        ({"attention_chunk_size": 16, "layer_types": ["chunked_attention"] * 2}, {"chunked_attention": 16}),
        ({"attention_chunk_size": 64, "layer_types": ["chunked_attention"] * 2}, {}),
    ],
)
def test_a_configuration_names_the_windows_that_its_context_exceeds(
    fields: dict[str, Any], sizes: dict[str, int]
) -> None:
    assert windows_of(config(**fields)).sizes == sizes


def test_where_no_types_are_named_all_layers_are_alike() -> None:
    assert layer_types(config()) == ("full_attention",) * 2
    assert layer_types(config(sliding_window=8)) == ("sliding_attention",) * 2


def test_a_window_of_a_family_that_has_none_limits_nothing() -> None:
    assert windows_of(AutoConfig.for_model("llama", sliding_window=8, max_position_embeddings=64)).sizes == {}
    assert windows_of(MistralConfig(sliding_window=8, max_position_embeddings=64)).sizes == {"sliding_attention": 8}


def test_a_field_may_be_a_list_by_layer() -> None:
    assert by_layers(config(intermediate_size=[48, 64]), "intermediate_size") == [48, 64]
    assert by_layers(config(intermediate_size=48), "intermediate_size") == [48]


def test_a_layer_with_a_state_has_the_window_of_its_attention() -> None:
    kinds = ["hybrid_sliding", "hybrid", "conv"]
    shape = config(sliding_window=8, layer_types=kinds, num_hidden_layers=3)
    assert attention_types(shape) == ("sliding_attention", "full_attention", "conv")
    assert windows_of(shape) == Windows({"sliding_attention": 8}, attention_types(shape))


DORY = {"n_input_layers": 1, "n_recurrent_layers": 2, "n_recurrent_loops": 2}


@pytest.mark.parametrize(
    ("fields", "layers"),
    [
        ({}, "abcd"),
        ({"loop_layer_index_start": 1, "loop_layer_index_end": 3, "loop_num_passes": 3}, "abcdbcbc"),
        (DORY | {"recurrent_kv_cache_mode": "per_loop"}, "abcdbc"),
        (DORY | {"recurrent_kv_cache_mode": "last_loop"}, "abcd"),
    ],
)
def test_layers_in_a_loop_are_cached_once_a_repetition(fields: dict[str, Any], layers: str) -> None:
    assert "".join(cached(config(**fields), "abcd")) == layers
