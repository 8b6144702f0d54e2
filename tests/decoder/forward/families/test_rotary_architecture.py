"""Rotary positions, weight names and sizes computed from a configuration equal those of Hugging Face modules."""

from typing import Any

import pytest
import torch

from decoder.forward.families.architecture import Architecture
from decoder.forward.families.model import Rotation
from decoder.forward.families.registry import reading_bytes, shapes, weight_bytes
from tests import tiny
from tests.decoder.family_models import LLAMA3, MODELS, SCALED

POSITIONS = [*range(700), 1023, 4095, 32_767, 65_537]
ROTATED: dict[str, Any] = {
    f"{family}, {name}": (family, rope)
    for family in ("neox", "llama", "mistral", "qwen2")
    for name, rope in (
        ("default", {"rope_type": "default", "rope_theta": 10000.0}),
        ("a whole number for a base", {"rope_type": "default", "rope_theta": 500000}),
        ("scaled", SCALED | {"factor": 3.3}),
        ("llama 3", LLAMA3 | {"rope_theta": 500000.0, "original_max_position_embeddings": 8192}),
    )
}


def rotary(name: str) -> Any:
    """A module's rotary embedding; its wide heads include low frequencies."""
    family, rope = ROTATED[name]
    shape = {"hidden_size": 192, "num_attention_heads": 2, "rope_parameters": dict(rope)}
    return tiny.build(MODELS[family](**shape), seed=1).base_model.rotary_emb


@pytest.mark.parametrize("name", ROTATED)
def test_heads_are_rotated_as_far_as_by_the_module_to_the_last_bit(name: str) -> None:
    module = rotary(name)
    found = Architecture.of(module.config).frequencies
    assert module.attention_scaling == 1.0
    assert torch.equal(found, module.inv_freq)
    assert len(found) > 10


@pytest.mark.parametrize(
    "name", ["neox, default", "llama, a whole number for a base", "mistral, scaled", "qwen2, llama 3"]
)
def test_every_position_has_the_module_s_numbers_but_for_their_last_bit(name: str) -> None:
    module = rotary(name)
    for dtype in (torch.float32, torch.float64):
        turns = Rotation(Architecture.of(module.config).frequencies, dtype).at(POSITIONS)[:, 0, 0]
        cosine, sine = module(torch.empty(0, dtype=dtype), torch.tensor([POSITIONS]))
        assert turns.real.dtype is dtype
        # Angles have the same bits, but the rounding of their cosines may depend on their place in a tensor.
        last_bit = torch.finfo(torch.float32).eps
        torch.testing.assert_close(turns.real, cosine[0, :, : turns.shape[1]], rtol=0, atol=last_bit)
        torch.testing.assert_close(turns.imag, sine[0, :, : turns.shape[1]], rtol=0, atol=last_bit)


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_of_a_model_are_named_and_sized_as_the_module_s(name: str) -> None:
    module = tiny.build(MODELS[name](), seed=1)
    look = Architecture.of(module.config)
    assert shapes(look) == {weight: tuple(tensor.shape) for weight, tensor in module.named_parameters()}
    assert weight_bytes(look, torch.bfloat16) == 2 * sum(weight.numel() for weight in module.parameters())


def test_what_reading_takes_follows_from_the_largest_layer_or_the_head() -> None:
    layer = Architecture.of(tiny.FAMILIES["neox"](hidden_size=64, intermediate_size=512))
    head = Architecture.of(tiny.FAMILIES["neox"](vocab_size=100_000))
    module = tiny.build(tiny.FAMILIES["neox"](hidden_size=64, intermediate_size=512), seed=1)
    largest = sum(weight.numel() for weight in module.base_model.layers[0].parameters())
    assert reading_bytes(layer, torch.bfloat16) == 3 * 4 * largest
    assert reading_bytes(layer, torch.float64) == 3 * 8 * largest
    assert reading_bytes(head, torch.float32) == 3 * 4 * 100_000 * head.hidden_size
