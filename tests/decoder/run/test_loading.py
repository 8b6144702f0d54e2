"""Pairs that the engine cannot decode exactly are refused in one clear sentence."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import OpenAIGPTConfig

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, ModelError, PairError, PromptError, first_line
from decoder.events import Round
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.fake_cuda.driver import fake_cuda


def load(target: Path | None, draft: Path | None, dtype: str = "float32", device: str = "cpu") -> None:
    names = [str(path) if path else None for path in (target, draft)]
    load_pair(*names, device=device, dtype=dtype, report=lambda _: None)


def one_sentence(error: pytest.ExceptionInfo[ModelError] | pytest.ExceptionInfo[ConfigError]) -> bool:
    """Whether the error is one line of more than six words."""
    return "\n" not in str(error.value) and len(str(error.value).split()) > 6


@pytest.mark.parametrize("turned", [False, True], ids=["target", "draft"])
@pytest.mark.parametrize("kind", tiny.UNFIT)
def test_a_model_that_does_more_than_cache_rows_is_refused(tmp_path: Path, kind: str, *, turned: bool) -> None:
    pair = tiny.unfit_pair(kind, tmp_path)
    with pytest.raises(PairError) as refusal:
        load(*((pair.draft, pair.target) if turned else (pair.target, pair.draft)))
    assert one_sentence(refusal)
    assert refusal.value.exit_code == 3


@pytest.mark.parametrize("turned", [False, True], ids=["target", "draft"])
def test_a_model_that_only_a_trial_shows_to_be_unfit_is_refused(tmp_path: Path, *, turned: bool) -> None:
    unfit = tiny.build(OpenAIGPTConfig(vocab_size=tiny.VOCABULARY, n_embd=32, n_layer=2, n_head=2), seed=1)
    pair = tiny.save_pair(tmp_path, unfit, tiny.build(tiny.FAMILIES["neox"](), seed=1))
    with pytest.raises(PairError, match="cannot run a draft tree") as refusal:
        load(*((pair.draft, pair.target) if turned else (pair.target, pair.draft)))
    assert one_sentence(refusal)


def test_a_draft_with_another_tokenizer_bounds_neither_vocabulary_nor_context(tmp_path: Path) -> None:
    own = tiny.build(tiny.FAMILIES["neox"](vocab_size=280, max_position_embeddings=96), seed=2)
    target = tiny.save(tmp_path / "target", tiny.build(tiny.FAMILIES["neox"](), seed=1), tiny.train_tokenizer())
    draft = tiny.save(tmp_path / "draft", own, tiny.train_tokenizer(tiny.OTHER_SENTENCES))
    pair = load_pair(str(target), str(draft), device="cpu", dtype="float32").pair
    assert (pair.vocabulary, pair.context) == (tiny.VOCABULARY, tiny.CONTEXT)
    assert pair.translation is not None
    assert pair.translation.vocabulary == 270
    with pytest.raises(
        ConfigError, match="draft with the tokens of target is needed, but draft has a tokenizer of its own"
    ) as refusal:
        _ = pair.draft_model
    assert one_sentence(refusal)


def test_a_sliding_window_that_is_switched_off_is_no_obstacle(tmp_path: Path) -> None:
    config = tiny.FAMILIES["qwen3"](use_sliding_window=False, sliding_window=8)
    target = tiny.build(config, seed=1)
    pair = tiny.save_pair(tmp_path, target, tiny.kin(target, seed=2))
    load(pair.target, pair.draft)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no folder .*nowhere") as refusal:
        load(tmp_path / "nowhere", tmp_path / "nowhere")
    assert one_sentence(refusal)
    assert refusal.value.exit_code == 3


def configured(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")

    return change


def written(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content, encoding="utf-8")


def broken_off(length: int) -> Callable[[Path], object]:
    return lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:length])


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def lacking(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    del weights["gpt_neox.layers.1.mlp.dense_h_to_4h.weight"]
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


WEIGHTS = "model.safetensors"
SHAPE, NO_TOKENIZER = (
    "weights differ in shape from the configuration, ",
    r"^cannot load the tokenizer of .*; give a hub id",
)
BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "an empty folder": ("neox", emptied, ""),
    "pickled weights": ("neox", pickled, ""),
    "a lack of weights": ("neox", lacking, "dense_h_to_4h"),
    **{f"{length} bytes of weights": ("neox", broken_off(length), "") for length in (0, 4, 1000, 20_000)},
    "no JSON": ("neox", written("config.json", "{"), ""),
    "a word for a number": (
        "llama",
        configured(num_attention_heads="two"),
        r"num_attention_heads.*expected int.*two.*; give a hub id",
    ),
    "a list for a number": ("llama", configured(hidden_size=[32]), ""),
    "no heads to divide by": ("llama", configured(num_attention_heads=0), ""),
    "a number for a table": ("llama", configured(rope_parameters=7), ""),
    "positions of no known kind": (
        "llama",
        configured(rope_parameters={"rope_type": "spiral", "rope_theta": 1e4}),
        "",
    ),
    "a number for a word": ("llama", configured(hidden_act=3), ""),
    "heads larger than any": ("llama", configured(head_dim=10**9), ""),
    "more layers than any model has": ("llama", configured(num_hidden_layers=10**6), ""),
    "more layers than the checkpoint has": ("llama", configured(num_hidden_layers=99), ""),
    "fewer than no layers": ("llama", configured(num_hidden_layers=-1), ""),
    "no context": ("llama", configured(max_position_embeddings=0), ""),
    "a vocabulary for which there is no memory": ("llama", configured(vocab_size=10**12), ""),
    "a word for a token": ("llama", configured(eos_token_id="x"), ""),  # noqa: S106 - a token id
    "another vocabulary": ("llama", configured(vocab_size=7), SHAPE),
    "another width": ("llama", configured(intermediate_size=1), SHAPE),
    "too few layers": (
        "llama",
        configured(num_hidden_layers=1),
        "weights of more layers than the configuration",
    ),
    **{
        f"{content!r} as tokenizer": ("llama", written("tokenizer.json", content), NO_TOKENIZER)
        for content in ("[1, 2]", "{}", "", "\0")
    },
    **{
        f"{eos} as end of text": ("neox", written("generation_config.json", json.dumps({"eos_token_id": eos})), "")
        for eos in ("x", {"a": 1}, [1, "x"], 1.5)
    },
}


@pytest.mark.parametrize(("family", "change", "why"), BROKEN.values(), ids=BROKEN)
def test_a_checkpoint_that_is_broken_is_refused_in_one_sentence(
    tiny_models: TinyModels, tmp_path: Path, family: str, change: Callable[[Path], object], why: str
) -> None:
    pair = tiny_models.pair(family)
    broken = shutil.copytree(pair.target, tmp_path / "broken")
    change(broken)
    with pytest.raises(ModelError, match=why or None) as refusal:
        load(broken, pair.draft)
    assert one_sentence(refusal)
    assert refusal.value.exit_code == 3


def test_what_fails_within_a_loader_is_told_as_a_value_of_a_wrong_kind(tiny_models: TinyModels, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_models.pair("llama").target, broken)
    (broken / "tokenizer_config.json").write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(ModelError, match=r"the tokenizer of .*: a value has the wrong type: .*list"):
        load(broken, broken)


def test_a_list_of_no_tokens_ends_no_text(tiny_models: TinyModels, tmp_path: Path) -> None:
    pair = tiny_models.pair("neox")
    folder = tmp_path / "endless"
    shutil.copytree(pair.target, folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": []}', encoding="utf-8")
    assert load_pair(str(folder), str(pair.draft), device="cpu", dtype="float32").pair.eos == frozenset()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no such file.", "no such file"),
        ("\nno such file.\nlook elsewhere", "no such file"),
        ("field 'heads':\n    TypeError: it is two", "field 'heads': TypeError: it is two"),
        ("field 'heads':\n\n    TypeError: it is two\nand more", "field 'heads': TypeError: it is two"),
        ("field 'heads':", "field 'heads'"),
        ("", "ValueError"),
        (" \n ", "ValueError"),
    ],
)
def test_what_an_error_says_is_told_in_one_line(said: str, told: str) -> None:
    assert first_line(ValueError(said)) == told


def test_a_target_without_a_draft_is_drafted_for_by_lookups(tiny_models: TinyModels) -> None:
    target = tiny_models.pair("neox").target
    for draft in (None, "lookup"):
        pair = load_pair(str(target), draft, device="cpu", dtype="float32").pair
        assert (pair.draft, pair.draft_name, pair.vocabulary) == (None, "lookup", pair.target.width)


def test_an_unknown_dtype_is_refused(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    with pytest.raises(ConfigError, match="float12"):
        load(pair.target, pair.draft, dtype="float12")


def test_an_unknown_device_is_refused(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    with pytest.raises((ConfigError, ModelError), match="toaster"):
        load(pair.target, pair.draft, device="toaster")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_an_absent_device_is_refused(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    with pytest.raises(ModelError) as refusal:
        load(pair.target, pair.draft, device="cuda")
    assert one_sentence(refusal)


def test_beside_a_gpu_the_embedded_pair_runs_on_the_cpu_and_says_so() -> None:
    said: list[str] = []
    with fake_cuda():
        loaded = load_pair(report=said.append)
    assert loaded.pair.target.device.type == "cpu"
    assert "for the GPU, give --target and --draft" in said[0]
    assert not any("GPU" in line for line in said[1:])


def test_weights_that_run_natively_are_held_once(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    loaded = load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32")
    assert (loaded.pair.target.hf.loaded, loaded.pair.draft_model.hf.loaded) == (None, None)


def test_a_module_that_comes_back_goes_by_the_settings_of_its_pair(tiny_models: TinyModels) -> None:
    pair = tiny_models.ending("neox", eos_token_id=7, repetition_penalty=1.5)
    target = load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32").pair.target
    assert target.hf.module.generation_config is target.hf.generation
    assert target.hf.generation.eos_token_id == 7
    assert target.hf.generation.repetition_penalty != 1.5


def test_threads_are_chosen_for_a_pair_that_is_ready_to_run(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = list[Engine]()
    monkeypatch.setattr(Engine, "settle_threads", lambda engine: settled.append(engine))
    pair = tiny_models.pair("neox")
    loaded = load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32")
    assert settled == [loaded]


def test_the_shorter_context_of_the_two_counts(tiny_models: TinyModels, tmp_path: Path) -> None:
    target = tiny_models.pair("gpt2").target
    short = tiny.build(tiny.FAMILIES["gpt2"](n_positions=32), seed=1)
    draft = tiny.save(tmp_path / "short", short, tiny.train_tokenizer())
    pair = load_pair(str(target), str(draft), device="cpu", dtype="float32", report=lambda _: None)
    prompt = "0123456789"
    with pytest.raises(PromptError, match=re.escape("22")):
        next(decode(pair, prompt, RunConfig(("dynatree",), 23)))
    events = decode(pair, prompt, RunConfig(("dynatree", "linear"), 22))
    tokens: dict[str, list[int]] = {"dynatree": [], "linear": []}
    for event in events:
        if isinstance(event, Round):
            tokens[event.method] += event.committed
    expected = tiny_models.generate(tiny_models.pair("gpt2"), "float32", prompt, 22)
    assert tokens == {"dynatree": expected, "linear": expected}


@pytest.mark.parametrize("beyond", [-1, 10**6, 2**70])
def test_an_end_of_text_that_the_model_never_writes_is_left_out(tiny_models: TinyModels, beyond: int) -> None:
    pair = tiny_models.ending("llama", eos_token_id=[7, beyond])
    loaded = load_pair(str(pair.target), "lookup", device="cpu", dtype="float32", report=lambda *_: None).pair
    assert loaded.eos == {7}
    assert loaded.target.hf.generation.eos_token_id == 7


def test_an_end_of_text_that_is_true_is_refused(tiny_models: TinyModels) -> None:
    pair = tiny_models.ending("llama", eos_token_id=True)
    with pytest.raises(ModelError, match="says that eos_token_id is True, which is not a token id"):
        load_pair(str(pair.target), "lookup", device="cpu", dtype="float32", report=lambda *_: None)
