"""Native forward passes give the logits of Hugging Face modules for any tree, only verified models use them, and rotary
positions, weight names and sizes follow from a configuration.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, MistralConfig

from decoder.forward.families.architecture import Architecture
from decoder.forward.families.model import Rotation
from decoder.forward.families.registry import reading_bytes, shapes, weight_bytes
from decoder.forward.hf import source_of
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, load_model
from decoder.tree import visibility
from tests import tiny
from tests.decoder.family_models import LLAMA3, MODELS, SCALED, like_llama, made, native_of
from tests.decoder.kept_rows import keys_values
from tests.decoder.makers import TinyModels
from tests.decoder.random_trees import errors, path

IN_FLOAT16 = (
    *("neox", "neox, odd heads", "llama, one head for all"),
    *("mistral, windows of 8", "qwen2, windows in half of its layers"),
)
"""Models of each kind of layer; in both half precisions the passes are the same."""


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_random_trees_are_the_module_s_in_float64(name: str) -> None:
    module = made(name, torch.float64)
    model = native_of(module)
    for seed in range(5):
        assert errors(model, module, seed, module)[0] < 1e-11


@pytest.mark.parametrize("name", MODELS)
def test_in_float32_the_error_is_no_larger_than_the_module_s_own(name: str) -> None:
    module, judge = made(name), made(name, torch.float64)
    model = native_of(module)
    found = [errors(model, module, seed, judge) for seed in range(5)]
    assert max(mine for mine, _ in found) < max(2e-5, 2 * max(its for _, its in found))


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.bfloat16) for name in MODELS), *((name, torch.float16) for name in IN_FLOAT16)]
)
def test_in_half_precision_the_error_is_smaller_than_the_module_s_own(name: str, dtype: torch.dtype) -> None:
    module = made(name, dtype)
    judge = made(name, dtype).double()
    model = LanguageModel.of_module(module, name)
    found = [errors(model, module, seed, judge) for seed in range(3)]
    assert max(mine for mine, _ in found) < max(its for _, its in found)


@pytest.mark.parametrize("folder", [EMBEDDED_TARGET, EMBEDDED_DRAFT], ids=["target", "draft"])
def test_logits_of_the_embedded_pair_are_the_module_s(folder: Path) -> None:
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = native_of(module)
    assert max(errors(model, module, seed, module)[0] for seed in range(2)) < 5e-5


@pytest.mark.parametrize("name", ["neox", "llama"])
@torch.inference_mode()
def test_long_texts_are_read_as_the_module_reads_them(name: str) -> None:
    module = made(name)
    module.config.max_position_embeddings = 700
    model = native_of(module)
    text = np.random.default_rng(3).integers(0, 90, 600).tolist()
    cache = model.new_cache(600)
    model.read(cache, text[:20])
    model.read(cache, text[20:310])
    last = model.read(cache, text[310:])
    right = module(torch.tensor([text]), use_cache=True)
    assert float((last - right.logits[0, -1]).abs().max()) < 1e-3
    layers = right.past_key_values.layers
    expected = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in layers])
    assert float((keys_values(cache, model) - expected).abs().max()) < 1e-3


# Models that run natively


@pytest.mark.parametrize(("dtype", "native"), [(torch.float32, True), (torch.bfloat16, True), (torch.float64, False)])
def test_compiled_passes_alone_know_norms_of_heads(dtype: torch.dtype, *, native: bool) -> None:
    module = tiny.build(tiny.FAMILIES["qwen3"](), seed=1).to(dtype)
    assert LanguageModel.of_module(module, "qwen3").runs_without_module == native


class Adapted(nn.Linear):
    """A subclass of a linear layer, as adapters use."""


def _adapt(module: Any) -> None:
    module.gpt_neox.layers[0].mlp.dense_h_to_4h = Adapted(32, 64).eval()


def _hook(module: Any) -> None:
    module.gpt_neox.layers[1].register_forward_hook(lambda *_: None)


def _mix(module: Any) -> None:
    module.gpt_neox.layers[1].double()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an adapter": _adapt,
    "a hook": _hook,
    "a layer of another dtype": _mix,
    "dropout that is on": lambda module: module.train(),
    "weights on another device": lambda module: module.to("meta"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_model_runs_through_its_module(change: Callable[[Any], Any]) -> None:
    module = made("neox")
    assert LanguageModel.of_module(module, "neox").runs_without_module
    change(module)
    assert not LanguageModel.of_module(module, "neox").runs_without_module


OTHERS: dict[str, Callable[[], Any]] = {
    "another family": tiny.FAMILIES["gpt2"],
    "another activation": lambda: tiny.FAMILIES["neox"](hidden_act="relu"),
    "positions that depend on the length": lambda: tiny.FAMILIES["llama"](
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    ),
    "an odd width": lambda: tiny.FAMILIES["neox"](intermediate_size=63),
    "windows in layers of a family without windows": lambda: tiny.FAMILIES["llama"](
        sliding_window=8, layer_types=["full_attention", "sliding_attention"]
    ),
}


@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS)
def test_what_was_not_proved_runs_through_its_module(config: Callable[[], Any]) -> None:
    module = tiny.build(config(), seed=1)
    assert source_of(module) is None
    assert LanguageModel.of_module(module, "tiny").hf.module is module


def test_weights_are_held_once_and_the_module_comes_back_when_asked_for(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    model = load_model(str(pair.target), torch.device("cpu"), torch.float32)
    ids = torch.tensor([[1, 2, 3]])
    before: Tensor = model.hf.module(ids).logits
    model.slim()
    assert model.hf.loaded is None
    assert torch.equal(model.hf.module(ids).logits, before)


def test_what_runs_through_its_module_or_cannot_be_loaded_again_holds_it(tiny_models: TinyModels) -> None:
    by_module = load_model(str(tiny_models.pair("gpt2").target), torch.device("cpu"), torch.float32)
    for model in (LanguageModel.of_module(made("neox"), "tiny"), by_module):
        held = model.hf.module
        model.slim()
        assert model.hf.module is held


WINDOWED = ("mistral, windows of 8", "qwen2, windows in half of its layers")
WINDOW, VOCABULARY = 8, 96
TEXT = np.random.default_rng(5).integers(0, VOCABULARY, 40).tolist()
PARENTS = [-1, 0, 0, 1, 1, 2, 5, 3, 7, 8, 9, 10, 11, 12]
"""Parent of each tree node; the tree is deeper than the window."""
PATHS = [path(PARENTS, node) for node in range(len(PARENTS))]
VISIBLE = visibility(PATHS, len(PARENTS))


@pytest.mark.parametrize("name", WINDOWED)
@torch.inference_mode()
def test_nodes_have_the_logits_of_plain_text_round_by_round(name: str) -> None:
    """Kept rows keep their positions regardless of their place in the tree."""
    module = made(name, torch.float64)
    model, text = native_of(module), TEXT[: WINDOW + 3]
    cache = model.new_cache(len(text))
    model.read(cache, text[:4])
    model.read(cache, text[4:])
    for kept in ([0, 2, 5], [0, 1, 3, 7, 8, 9, 10, 11, 12], [0, 1, 4], [0]):
        tokens = [(7 * node + len(text)) % VOCABULARY for node in range(len(PARENTS))]
        cache.reserve(len(text) + len(tokens))
        found = model.forward(cache, tokens, [len(text) + len(nodes) - 1 for nodes in PATHS], VISIBLE)
        for logits, nodes in zip(found, PATHS, strict=True):
            right = module(torch.tensor([text + [tokens[node] for node in nodes]])).logits[0, -1]
            torch.testing.assert_close(logits, right, rtol=0, atol=1e-10)
        cache.keep([cache.length + node for node in kept])
        text += [tokens[node] for node in kept]


@pytest.mark.parametrize(("window", "kind"), [(191, "sliding_attention"), (192, "full_attention")])
def test_a_window_as_long_as_the_context_limits_nothing(window: int, kind: str) -> None:
    config = like_llama(MistralConfig, sliding_window=window)
    assert Architecture.of(config).layer_types == (kind,) * config.num_hidden_layers


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
