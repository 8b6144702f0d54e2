"""The longest text of a model: as long as all positions use the same rotary frequencies."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import LlamaConfig, Phi3Config

from decoder import RunConfig, decode, load_pair
from decoder.errors import PromptError
from decoder.events import Round
from decoder.forward.windows import NO_LIMIT, longest_text
from tests import tiny
from tests.decoder.makers import METHODS, TinyModels

ORIGINAL = 24
FACTORS = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 8.0, 20.0, 40.0]}
LONGROPE: dict[str, Any] = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": ORIGINAL}
SHAPE: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WHOLE = SHAPE | {"vocab_size": tiny.VOCABULARY, "tie_word_embeddings": False, "max_position_embeddings": tiny.CONTEXT}
BARE: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def phi3() -> Phi3Config:
    return Phi3Config(
        **WHOLE,
        **BARE,
        original_max_position_embeddings=ORIGINAL,
        rope_parameters=LONGROPE | FACTORS | {"partial_rotary_factor": 1.0},
    )


def llama(kind: str) -> LlamaConfig:
    kinds = {"longrope": LONGROPE | FACTORS, "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}
    return LlamaConfig(**WHOLE, **BARE, rope_parameters=kinds[kind])


@pytest.mark.parametrize("config", [phi3, lambda: llama("longrope")], ids=["phi3", "llama"])
def test_a_text_ends_before_longrope_turns_all_positions_otherwise(
    tiny_models: TinyModels, tmp_path: Path, config: Any
) -> None:
    target = tiny.build(config(), seed=1)
    saved = tiny.save_pair(tmp_path, target, tiny.kin(target, seed=2))
    pair = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32")
    prompt = "0123456789"
    room = ORIGINAL - len(tiny_models.prompt_tokens(saved, prompt))
    with pytest.raises(PromptError, match=str(room)):
        next(decode(pair, prompt, RunConfig(("dynatree",), room + 1)))
    texts: dict[str, list[int]] = {method: [] for method in METHODS}
    for event in decode(pair, prompt, RunConfig(METHODS, room)):
        if isinstance(event, Round):
            texts[event.method] += event.committed
    assert texts == dict.fromkeys(METHODS, tiny_models.generate(saved, "float32", prompt, room))


def test_dynamic_positions_stay_as_they_are_as_far_as_the_context_goes(tiny_models: TinyModels, tmp_path: Path) -> None:
    target = tiny.build(llama("dynamic"), seed=1)
    saved = tiny.save_pair(tmp_path, target, tiny.kin(target, seed=2))
    pair = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32")
    prompt = "0123456789"
    room = tiny.CONTEXT - len(tiny_models.prompt_tokens(saved, prompt))
    tokens: list[int] = []
    for event in decode(pair, prompt, RunConfig(("dynatree",), room)):
        if isinstance(event, Round):
            tokens += event.committed
    assert tokens == tiny_models.generate(saved, "float32", prompt, room)


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, NO_LIMIT),
        ({"max_position_embeddings": 64}, 64),
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


@pytest.mark.parametrize("name", ["max_position_embeddings", "max_target_positions", "max_seq_len"])
def test_a_family_may_have_its_own_word_for_the_length_of_a_text(name: str) -> None:
    assert longest_text(SimpleNamespace(**{name: 448})) == 448
