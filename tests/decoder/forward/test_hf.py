"""`has_room` uses shapes alone: it is fast for texts of any length and has no side effects.

`resized` makes a module with another configuration over the same weights.
"""

from typing import Any

import pytest
import torch
from transformers import GPTNeoConfig, MixtralConfig, Qwen3Config

from decoder.forward.hf import has_room, resized, sizes_of
from decoder.forward.language_model import LanguageModel
from decoder.knobs import MOST
from tests import tiny

LENGTH = 64
SHAPE: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
SHAPE |= {"num_key_value_heads": 2, "vocab_size": 96}


def neo() -> Any:
    """A family that stores a mask of the length of its longest text."""
    config = GPTNeoConfig(
        hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]], max_position_embeddings=LENGTH,
        vocab_size=96,
    )  # fmt: skip
    return tiny.build(config, seed=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("text", "rows", "room"),
    [(LENGTH - 8, 8, True), (LENGTH - 8, 9, False), (0, LENGTH, True), (LENGTH, 1 + MOST, False)],
)
def test_there_is_room_as_far_as_a_mask_goes(text: int, rows: int, dtype: torch.dtype, *, room: bool) -> None:
    """Rounds would fail where the text and the tree's nodes together exceed the longest text."""
    assert has_room(neo().to(dtype), text, rows) == room


@pytest.mark.parametrize("tied", [False, True])
def test_a_family_without_such_a_mask_has_room_however_long_its_text_is(*, tied: bool) -> None:
    context = 1 << 20
    config = Qwen3Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, head_dim=8, vocab_size=96,
        max_position_embeddings=context, tie_word_embeddings=tied,
    )  # fmt: skip
    assert LanguageModel.of_module(tiny.build(config, seed=1), "qwen3").has_room(1 + MOST)


def test_what_a_forward_pass_leaves_behind_in_its_module_is_not_left_in_this_one() -> None:
    """A pass may store tensors in its module, as some rotary embeddings do. On the meta device they have no values."""
    module, passes = neo(), list[torch.device]()

    def remember(part: Any, _given: Any, _output: Any) -> None:
        part.remembered = part.wte.weight * 2
        passes.append(part.remembered.device)

    module.transformer.register_forward_hook(remember)
    assert has_room(module, LENGTH - 8, 8)
    assert {device.type for device in passes} == {"meta"}
    assert not hasattr(module.transformer, "remembered")
    assert {weight.device.type for weight in module.state_dict().values()} == {"cpu"}


def test_a_family_that_looks_at_its_numbers_is_not_refused_for_that() -> None:
    module = tiny.build(tiny.FAMILIES["gpt2"](), seed=1)
    module.transformer.register_forward_hook(lambda _part, _given, output: float(output[0].sum()) and output)
    assert has_room(module, tiny.CONTEXT, 1 + MOST)


def test_a_module_of_another_size_has_the_same_weights_and_leaves_the_first_as_it_was() -> None:
    module = tiny.build(MixtralConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=3), seed=1)
    twin: Any = resized(module, "num_experts_per_tok", 2)
    assert (module.config.num_experts_per_tok, twin.config.num_experts_per_tok) == (3, 2)
    held, shared = module.state_dict(), twin.state_dict()
    assert {name: weight.data_ptr() for name, weight in held.items()} == {
        name: weight.data_ptr() for name, weight in shared.items()
    }
    ids = torch.tensor([[1, 2, 3]])
    assert twin(ids).logits.isfinite().all()
    assert not torch.allclose(twin(ids).logits, module(ids).logits)


@pytest.mark.parametrize("name", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_local_experts"])
def test_sizes_of_weights_are_those_of_no_other_module(name: str) -> None:
    module = tiny.build(MixtralConfig(**SHAPE, num_local_experts=4), seed=1)
    assert sizes_of(module)[name] > 2
    assert resized(module, name, 2) is None


def test_ids_of_tokens_are_no_sizes() -> None:
    named = sizes_of(tiny.build(MixtralConfig(**SHAPE, num_local_experts=4, pad_token_id=5), seed=1))
    assert named.keys() >= {"vocab_size", "num_experts_per_tok"}
    assert "pad_token_id" not in named
