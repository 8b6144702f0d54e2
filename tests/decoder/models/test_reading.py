"""The embedded pair, read without transformers, is bit for bit that of transformers, which reads all other models."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from decoder.errors import DeviceError
from decoder.forward import hf_module
from decoder.forward.families.architecture import Architecture
from decoder.forward.language_model import LanguageModel
from decoder.models import checkpoints
from decoder.models.checkpoints import (
    EMBEDDED_DRAFT,
    EMBEDDED_TARGET,
    EmbeddedWeights,
    PlainTokenizer,
    load_config,
    load_model,
    load_tokenizer,
)
from tests import tiny
from tests.decoder.family_models import COMPILED, MODELS, laid_out_anew, made
from tests.decoder.makers import TinyModels
from tests.head_files import reconfigure, rewrite

CPU = torch.device("cpu")
PAIR = pytest.mark.parametrize("folder", [EMBEDDED_TARGET, EMBEDDED_DRAFT], ids=["target", "draft"])
PIECES = (
    *(" ", "\n\n\t \r\n", "It was a dark and stormy night", "don't  stop,\u00a0now \u2009 \u3000!", "0123456789 " * 9),
    *("naïve “quoted” … ½ ² Ⅷ", "e\u0301 \u1100\u1161\u11a8 \ufb01 \u2126", "日本語。 한국어 العربية עברית हिन्दी ไทย"),
    *(
        "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 \U0001f9ff\ufe0f",
        "\u200b\u2060\ufeff\u202e\u0000\u001b[31m",
        "\ufffd\uffff\U0010ffff\ue000",
    ),
    *(
        "<|endoftext|>",
        "<|endoftext",
        "|>",
        "<|begin|>",
        "<s></s>[INST]",
        "x" * 300,
        "def f(x):\n    return x**2  # !?",
    ),
    "\u017f ß ẞ \u0130 \u0131 Σ ς \u01c5",
)
TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


def logits(model: LanguageModel) -> Tensor:
    """Logits of a text's last token and of a tree after it, shape (6, V)."""
    cache, visible = model.new_cache(12), np.tri(5, dtype=np.bool_)
    visible[4, 3] = False
    text = model.read(cache, [3, 1, 4, 1, 5, 9, 2])
    tree = model.forward(cache, [6, 5, 3, 5, 8], [7, 8, 9, 10, 10], visible)
    return torch.cat((text[None], tree))


@PAIR
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@torch.inference_mode()
def test_its_logits_have_the_bits_of_a_model_that_was_read_from_its_module(folder: Path, dtype: torch.dtype) -> None:
    module = laid_out_anew(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval())
    found = load_model(str(folder), CPU, dtype)
    assert found.hf.loaded is None
    assert torch.equal(logits(found), logits(LanguageModel.of_module(module, "module")))


@PAIR
def test_its_configuration_means_what_it_means_to_transformers(folder: Path) -> None:
    assert load_config(str(folder)) == Architecture.of(AutoConfig.from_pretrained(folder))


@PAIR
def test_what_a_model_tells_is_what_its_module_tells(folder: Path) -> None:
    model = load_model(str(folder), CPU, torch.bfloat16)
    module = LanguageModel.of_module(model.hf.module, "module")
    for name in ("layers", "width", "context", "device", "dtype", "eos"):
        assert getattr(model, name) == getattr(module, name)
    shapes = {weight: tensor.shape for weight, tensor in model.hf.module.named_parameters()}
    model.slim()
    assert {weight: tensor.shape for weight, tensor in model.hf.skeleton.named_parameters()} == shapes


def test_no_module_is_made_before_somebody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right, asked = checkpoints._hf, list[object]()
    monkeypatch.setattr(hf_module, "_hf", lambda: pytest.fail("nobody asks"))
    monkeypatch.setattr(checkpoints, "_hf", lambda: (asked.append(None), right())[1])  # type: ignore[func-returns-value]
    model = load_model(str(EMBEDDED_TARGET), CPU, torch.float32)
    assert (model.hf.loaded, model.runs_without_module, asked) == (None, True, [])
    assert model.hf.module is model.hf.loaded
    assert len(asked) == 1


def test_weights_stay_as_they_were_read_when_their_file_is_written_over(tmp_path: Path) -> None:
    folder = str(shutil.copytree(EMBEDDED_DRAFT, tmp_path / "copy"))
    weights = EmbeddedWeights(folder, load_config(str(EMBEDDED_DRAFT)), torch.bfloat16, CPU, lambda _: None)
    weight, path = weights["gpt_neox.layers.1.mlp.dense_h_to_4h.weight"], Path(folder, "model.safetensors")
    before = weight.clone()
    with path.open("r+b") as file:
        file.seek(-path.stat().st_size * 3 // 4, 2)
        file.write(bytes(path.stat().st_size // 2))
    assert torch.equal(weight, before)


# Its tokenizer


@cache
def both(folder: Path) -> tuple[PlainTokenizer, Any]:
    found = load_tokenizer(str(folder))
    assert isinstance(found, PlainTokenizer)
    return found, AutoTokenizer.from_pretrained(folder)


@settings(max_examples=150, deadline=None)
@given(folder=st.sampled_from([EMBEDDED_TARGET, EMBEDDED_DRAFT]), text=TEXT)
def test_any_text_is_cut_and_joined_alike(folder: Path, text: str) -> None:
    mine, theirs = both(folder)
    for special in (True, False):
        ids = theirs(text, add_special_tokens=special, verbose=False).input_ids
        assert mine(text, add_special_tokens=special, verbose=False).input_ids == ids
        for skip in (True, False):
            right = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert mine.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False) == right


@PAIR
def test_tokens_are_the_same_and_every_one_is_written_alike(folder: Path) -> None:
    mine, theirs = both(folder)
    assert mine.get_vocab() == theirs.get_vocab()
    assert mine.chat_template == theirs.chat_template
    for token in range(len(theirs)):
        for ids in ([token], [token, token], [70, token]):
            for skip in (True, False):
                right = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
                assert mine.decode(ids, skip_special_tokens=skip) == right


def test_tokens_that_do_not_exist_are_joined_alike_and_half_a_character_fails_alike() -> None:
    mine, theirs = both(EMBEDDED_TARGET)
    ids = [5, 2048, 99_999, 6]
    assert mine.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)
    for text in ("\ud800", "a\udfffb"):
        with pytest.raises(Exception, match=r".") as right:
            theirs(text)
        with pytest.raises(right.type):
            mine(text)


# All other models


@pytest.mark.parametrize("name", MODELS | COMPILED)
@torch.inference_mode()
def test_a_native_family_computes_the_logits_of_its_module_and_has_let_go_of_it(name: str, tmp_path: Path) -> None:
    made(name).save_pretrained(tmp_path, max_shard_size="20KB")
    model = load_model(str(tmp_path), CPU, torch.float32)
    module = laid_out_anew(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval())
    assert model.hf.loaded is None
    assert torch.equal(model.output_head, module.get_output_embeddings().weight)
    assert torch.equal(logits(model), logits(LanguageModel.of_module(module, "module")))


@pytest.mark.parametrize(
    ("name", "unused"),
    [
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("neox", "gpt_neox.layers.1.attention.bias"),
        ("neox", "gpt_neox.layers.1.attention.masked_bias"),
    ],
)
def test_what_older_checkpoints_hold_beside_their_weights_is_not_read(tmp_path: Path, name: str, unused: str) -> None:
    made(name).save_pretrained(tmp_path)
    rewrite(tmp_path, {unused: torch.ones(4)})
    assert load_model(str(tmp_path), CPU, torch.float32).runs_without_module


@pytest.mark.parametrize(
    "settings", [{"eos_token_id": 7}, {"eos_token_id": [7, 9], "do_sample": True}, {}, None], ids=str
)
def test_a_text_ends_as_transformers_reads_it(tmp_path: Path, settings: dict[str, Any] | None) -> None:
    made("llama").save_pretrained(tmp_path)
    reconfigure(tmp_path, {"eos_token_id": 5})
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    if settings is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    right = AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id
    assert load_model(str(tmp_path), CPU, torch.float32).eos == right


def test_a_module_that_is_asked_for_before_its_pair_is_made_has_its_own_settings(tiny_models: TinyModels) -> None:
    pair = tiny_models.ending("neox", eos_token_id=7, repetition_penalty=1.5)
    model = load_model(str(pair.target), CPU, torch.float32)
    assert isinstance(model.hf.generation, GenerationConfig)
    assert model.hf.generation.repetition_penalty == 1.5
    model.hf.end_with(7, pad=7)
    assert model.hf.module.generation_config is model.hf.generation
    assert (model.hf.generation.eos_token_id, model.hf.generation.repetition_penalty) != (7, 1.5)


@pytest.mark.parametrize("family", ["", "gpt2"])
def test_what_does_not_fit_in_a_device_s_memory_is_told_in_one_line(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LanguageModel, "of_module" if family else "of_weights", full)
    name = tiny_models.pair(family).target if family else EMBEDDED_TARGET
    with pytest.raises(DeviceError, match="does not fit in the memory of cpu; choose a smaller model or dtype"):
        load_model(str(name), CPU, torch.float32)


def test_a_chat_is_asked_of_the_tokenizer_of_transformers(tiny_models: TinyModels) -> None:
    assert load_tokenizer(str(tiny_models.pair("chat").target)).chat_template == tiny.TEMPLATE
