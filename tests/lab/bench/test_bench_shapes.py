"""Pairs without trained weights: known shapes, and drafts that guess at random."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from decoder.engine import Engine
from decoder.errors import ConfigError, DecoderError, DeviceError, PairError
from decoder.forward.static_forward import static_forward
from decoder.methods.dynatree import PRESETS
from decoder.run.config import RunConfig
from dynatui.lab.bench import shapes
from dynatui.lab.bench.contenders import decoded
from tests import tiny
from tests.decoder.makers import TinyModels

PUBLISHED = {
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
}


@pytest.mark.parametrize("name", shapes.names())
def test_the_shapes_have_as_many_parameters_as_the_published_models(name: str) -> None:
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(shapes._config(name))
    assert sum(weight.numel() for weight in model.parameters()) == PUBLISHED[name]


UNREADABLE, UNFIT = "is not a model's configuration", "is not the configuration of a language model"
NEOX = {
    "model_type": "gpt_neox",
    "vocab_size": 288,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


@pytest.mark.parametrize(
    ("fields", "error", "why"),
    [
        (None, ConfigError, "cannot read"),
        ("{", ConfigError, UNREADABLE),
        ({"model_type": "nonesuch"}, ConfigError, UNREADABLE),
        ([], ConfigError, UNREADABLE),
        ({}, ConfigError, UNREADABLE),
        (NEOX | {"num_attention_heads": "two"}, ConfigError, UNREADABLE),
        (NEOX | {"num_attention_heads": 3}, ConfigError, UNREADABLE),
        (NEOX | {"dtype": "float99"}, ConfigError, UNREADABLE),
        (NEOX | {"hidden_act": "nonesuch"}, ConfigError, rf"{UNFIT} \('nonesuch'\); give another"),
        ({"model_type": "vit"}, ConfigError, UNFIT),
        ({"model_type": "t5"}, PairError, "is an encoder-decoder"),
        ({"model_type": "blt"}, PairError, "has no attention heads, and no layers whose state is of a known kind"),
        (NEOX | {"vocab_size": 4}, PairError, "cannot run a draft tree"),
    ],
)
def test_a_configuration_that_makes_no_fit_model_is_refused_in_one_short_line(
    tmp_path: Path, fields: Any, error: type[DecoderError], why: str
) -> None:
    path = tmp_path / "config.json"
    if fields is not None:
        path.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    with pytest.raises(error, match=why) as refused:
        shapes.random_pair(str(path), str(path), device="cpu", dtype="float32")
    sentence = str(refused.value).replace(str(path), "")
    assert "\n" not in sentence
    assert len(sentence) < 260


def test_a_shape_that_fills_the_memory_is_told_as_such(
    config_files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def overflow(*_given: Any, **_settings: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    monkeypatch.setattr(AutoModelForCausalLM, "from_config", overflow)
    with pytest.raises(DeviceError, match=r"target\.json does not fit in the memory of cpu; choose a smaller shape"):
        shapes.random_pair(*config_files, device="cpu", dtype="float32")


def test_both_shapes_are_known_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_random_module", lambda *_: pytest.fail("this takes minutes"))
    known = r"no shape 'gpt-5'; give a config\.json, or one of llama-3\.1-8b, .*pythia-70m"
    with pytest.raises(ConfigError, match=known):
        shapes.random_pair("pythia-6.9b", "gpt-5", device="cpu", dtype="float32")


def test_random_weights_have_biases_as_trained_ones_do_where_the_family_has_any(
    config_files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer without biases would be a shorter pass. A layer's last product has its bias as a column."""
    tried: list[object] = []
    monkeypatch.setattr("decoder.engine.choose_threads", lambda run, _: tried.append(run()))
    engine = shapes.random_pair(*config_files, device="cpu", dtype="float32")
    assert tried == [None], "threads are chosen as for any pair"
    for model in (engine.pair.target, engine.pair.draft_model):
        biases = [weight.detach() for name, weight in model.hf.module.named_parameters() if name.endswith("bias")]
        assert len(biases) >= 7
        assert all(0.001 < float(bias.abs().max()) < 0.2 for bias in biases)
        form = static_forward(model)
        layers = form.layers  # type: ignore[attr-defined]
        assert all(layer.inward.bias is not None for layer in layers)
        assert all(bool(layer.outward.weight[:, model.hf.module.config.intermediate_size].any()) for layer in layers)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(NEOX | {"model_type": "llama", "num_key_value_heads": 1}))
    engine = shapes.random_pair(str(path), str(path), device="cpu", dtype="float32")
    assert not [name for name, _ in engine.pair.target.hf.module.named_parameters() if "bias" in name]


def tied(tiny_models: TinyModels) -> tiny.TinyPair:
    """A pair whose draft shares its input and output embeddings."""
    draft = tiny.build(tiny.FAMILIES["neox"](tie_word_embeddings=True), seed=5)
    return tiny.save_pair(tiny_models.fresh(), tiny.build(tiny.FAMILIES["neox"](), seed=4), draft)


@pytest.mark.parametrize("family", ["neox", "gpt2", "tied"])
def test_a_random_draft_is_sure_of_itself_and_right_by_chance_alone(tiny_models: TinyModels, family: str) -> None:
    saved = tied(tiny_models) if family == "tied" else tiny_models.pair(family)
    engine: Engine = shapes.with_random_draft(tiny_models.loaded(saved, "float32"))
    run = RunConfig(max_new_tokens=40, dynatree=PRESETS["paper"])
    tally = decoded(engine, [1, 2, 3], "dynatree", run).tally
    assert tally.accepted <= 0.02 * tally.drafted
    assert tally.drafted > 40
    logits = engine.pair.draft_model.forward(
        engine.pair.draft_model.new_cache(4), [1, 2, 3], [0, 1, 2], np.tri(3, dtype=np.bool_)
    )
    assert float(logits.detach().softmax(-1).amax(-1).median()) > 0.9


@pytest.mark.parametrize("family", ["neox", "gpt2"])
def test_the_pair_that_gets_a_random_draft_stays_as_it_was(tiny_models: TinyModels, family: str) -> None:
    engine: Engine = tiny_models.loaded(tiny_models.pair(family), "float32")
    before = decoded(engine, [1, 2, 3], "linear", RunConfig(max_new_tokens=20)).tally
    other = shapes.with_random_draft(engine)
    assert other.pair.target is engine.pair.target
    assert other.costs == {}
    assert other.acceptance is not engine.acceptance
    assert other.pair.draft_name == f"{engine.pair.draft_name} (random head)"
    after = decoded(engine, [1, 2, 3], "linear", RunConfig(max_new_tokens=20)).tally
    assert (after.tokens, after.accepted) == (before.tokens, before.accepted)
    assert after.accepted > 0
