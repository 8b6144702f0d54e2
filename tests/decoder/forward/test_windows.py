"""Windows by position, and the longest text whose positions all use the same rotary frequencies."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import AutoConfig, LlamaConfig, Phi3Config

from decoder import RunConfig, decode
from decoder.errors import PromptError
from decoder.forward.layer_kinds import (
    NO_LIMIT,
    Windows,
    attention_types,
    by_layers,
    cached,
    chunked,
    first_seen,
    layer_types,
    longest_text,
    sliding,
    windows_of,
)
from tests import tiny
from tests.decoder.makers import METHODS, TinyModels, play


def positions(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


class Config(SimpleNamespace):
    """A configuration of a family that may have a window in all layers."""

    def __init__(self, sliding_window: int | None = None, **fields: Any) -> None:
        super().__init__(sliding_window=sliding_window, **fields)


def config(**fields: Any) -> Config:
    return Config(**{"max_position_embeddings": 64, "num_hidden_layers": 2} | fields)


def seen(found: NDArray[np.bool_]) -> list[str]:
    return ["".join("x" if each else "." for each in row) for row in found]


def test_a_sliding_window_ends_with_the_query_and_counts_it_and_a_chunk_begins_anew_after_its_size() -> None:
    assert seen(sliding(positions(4, 5), positions(0, 1, 2, 3, 4, 5), 3))[1] == "...xxx"
    assert seen(sliding(positions(4), positions(0, 1, 2, 3, 4), 3)) == ["..xxx"]
    assert seen(chunked(positions(3, 4, 5), positions(2, 3, 4, 5), 4)) == ["xx..", "..xx", "..xx"]
    siblings = positions(0, 1, 2, 3, 3, 3)
    assert seen(sliding(siblings[3:], siblings, 2)) == ["..xxxx"] * 3, "siblings see equally far back"


def test_each_layer_type_has_its_own_mask_within_that_of_the_tree() -> None:
    tree = np.array([[True, True, True, False], [True, True, False, True]])
    windows = Windows({"sliding_attention": 2}, ("full_attention", "sliding_attention"))
    masks = windows.masks(tree, positions(2, 2), positions(0, 1, 2, 2))
    assert {kind: seen(mask) for kind, mask in masks.items()} == {
        "full_attention": ["xxx.", "xx.x"],
        "sliding_attention": [".xx.", ".x.x"],
    }


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
    for family, sizes in (("llama", {}), ("mistral", {"sliding_attention": 8})):
        shape = AutoConfig.for_model(family, sliding_window=8, max_position_embeddings=64)
        assert windows_of(shape).sizes == sizes


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


ORIGINAL = 24
FACTORS = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 8.0, 20.0, 40.0]}
LONGROPE: dict[str, Any] = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": ORIGINAL}
SHAPE: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WHOLE: dict[str, Any] = SHAPE | {
    "vocab_size": tiny.VOCABULARY,
    "tie_word_embeddings": False,
    "max_position_embeddings": tiny.CONTEXT,
}
WHOLE |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


ROPES = {"longrope": LONGROPE | FACTORS, "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}
PHI3 = LONGROPE | FACTORS | {"partial_rotary_factor": 1.0}


@pytest.mark.parametrize(
    ("config", "longest", "methods"),
    [
        (Phi3Config(**WHOLE, original_max_position_embeddings=ORIGINAL, rope_parameters=PHI3), ORIGINAL, METHODS),
        (LlamaConfig(**WHOLE, rope_parameters=ROPES["longrope"]), ORIGINAL, METHODS),
        (LlamaConfig(**WHOLE, rope_parameters=ROPES["dynamic"]), tiny.CONTEXT, ("dynatree",)),
    ],
    ids=["phi3", "llama", "dynamic"],
)
def test_a_text_ends_before_longrope_turns_all_positions_otherwise(
    tiny_models: TinyModels, tmp_path: Path, config: Any, longest: int, methods: tuple[str, ...]
) -> None:
    """Dynamic positions stay as they are as far as the context goes."""
    target, prompt = tiny.build(config, seed=1), "0123456789"
    saved = tiny.save_pair(tmp_path, target, tiny.kin(target, seed=2))
    engine = tiny_models.engine(saved)
    room = longest - len(tiny_models.prompt_tokens(saved, prompt))
    with pytest.raises(PromptError, match=str(room)):
        next(decode(engine, prompt, RunConfig(("dynatree",), room + 1)))
    race = play(engine, RunConfig(methods, room), prompt)
    right = tiny_models.generate(saved, "float32", prompt, room)
    assert {method: race.tokens(method) for method in methods} == dict.fromkeys(methods, right)


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, NO_LIMIT),
        *(({name: 448}, 448) for name in ("max_position_embeddings", "max_target_positions", "max_seq_len")),
        ({"max_position_embeddings": 64, "rope_parameters": None}, 64),
        ({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "llama3"}}, 64),
        ({"max_position_embeddings": 64, "rope_parameters": LONGROPE}, ORIGINAL),
        ({"rope_parameters": {"full_attention": LONGROPE}}, ORIGINAL),
        ({"max_position_embeddings": 16, "rope_parameters": LONGROPE}, 16),
        ({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "longrope"}}, 64),
        ({"original_max_position_embeddings": 8, "rope_parameters": {"rope_type": "longrope"}}, 8),
        ({"original_max_position_embeddings": 8, "max_position_embeddings": 64}, 64),
    ],
)
def test_the_longest_text_is_told_by_the_configuration(settings: dict[str, Any], longest: int) -> None:
    assert longest_text(SimpleNamespace(**settings)) == longest
