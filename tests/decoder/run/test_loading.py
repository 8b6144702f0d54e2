"""Pairs that the engine cannot decode exactly are refused in one clear sentence."""

import json
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
from decoder.errors import ConfigError, DecoderError, ModelError, PairError, PromptError, first_line
from decoder.events import Run, arithmetic
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from tests import tiny
from tests.decoder.laws.races import drafting_in
from tests.decoder.makers import PROMPT, TinyModels, play
from tests.decoder.session.cuda_graph.matching import match, recorded
from tests.fake_cuda.driver import fake_cuda

WEIGHTS = "model.safetensors"
TURNED = pytest.mark.parametrize("turned", [False, True], ids=["target", "draft"])


def loaded(target: Path, draft: Path | str, dtype: str = "float32", device: str = "cpu") -> Engine:
    return load_pair(str(target), str(draft), device=device, dtype=dtype, report=lambda *_: None)


def assert_refused(error: type[DecoderError], target: Path, draft: Path | str, why: str = "", **how: str) -> None:
    """Asserts that the pair is refused in one sentence of more than six words."""
    with pytest.raises(error, match=why or None) as refusal:
        loaded(target, draft, **how)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value).split()) > 6
    assert refusal.value.exit_code == (2 if error is ConfigError else 3)


def configured(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")

    return change


def written(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content, encoding="utf-8")


def lacking(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    del weights["gpt_neox.layers.1.mlp.dense_h_to_4h.weight"]
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


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


SHAPE = "weights differ in shape from the configuration, "
NO_TOKENIZER = r"^cannot load the tokenizer of .*; give a hub id"
NO_INTEGER = r"num_attention_heads.*expected int.*two.*; give a hub id"
SPIRAL = {"rope_type": "spiral", "rope_theta": 1e4}
BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("neox", lacking, "dense_h_to_4h"),
    ("llama", configured(num_attention_heads="two"), NO_INTEGER),
    *(
        ("llama", configured(**changes), "")
        for changes in (
            *({"hidden_size": [32]}, {"num_attention_heads": 0}, {"rope_parameters": 7}, {"rope_parameters": SPIRAL}),
            *({"hidden_act": 3}, {"head_dim": 10**9}, {"num_hidden_layers": 10**6}, {"num_hidden_layers": 99}),
            *({"num_hidden_layers": -1}, {"max_position_embeddings": 0}, {"vocab_size": 10**12}),
            {"eos_token_id": "x"},
        )
    ),
    *(("llama", configured(**changes), SHAPE) for changes in ({"vocab_size": 7}, {"intermediate_size": 1})),
    ("llama", configured(num_hidden_layers=1), "weights of more layers than the configuration"),
    *(("llama", written("tokenizer.json", content), NO_TOKENIZER) for content in ("[1, 2]", "{}", "", "\0")),
    ("llama", written("tokenizer_config.json", "[1, 2]"), r"tokenizer of .*: a value has the wrong type: .*list"),
    *(
        ("neox", written("generation_config.json", json.dumps({"eos_token_id": eos})), "")
        for eos in ("x", {"a": 1}, [1, "x"], 1.5)
    ),
    (
        "llama",
        written("generation_config.json", '{"eos_token_id": true}'),
        "says that eos_token_id is True, which is not a token id",
    ),
]


@pytest.mark.parametrize(("family", "change", "why"), BROKEN)
def test_a_checkpoint_that_is_broken_is_refused_in_one_sentence(
    tiny_models: TinyModels, tmp_path: Path, family: str, change: Callable[[Path], object], why: str
) -> None:
    pair = tiny_models.pair(family)
    broken = shutil.copytree(pair.target, tmp_path / "broken")
    change(broken)
    assert_refused(ModelError, broken, pair.draft, why)


@TURNED
@pytest.mark.parametrize("kind", tiny.UNFIT)
def test_a_model_that_does_more_than_cache_rows_is_refused(tmp_path: Path, kind: str, *, turned: bool) -> None:
    pair = tiny.unfit_pair(kind, tmp_path)
    assert_refused(PairError, *((pair.draft, pair.target) if turned else (pair.target, pair.draft)))


@TURNED
def test_a_model_that_only_a_trial_shows_to_be_unfit_is_refused(tmp_path: Path, *, turned: bool) -> None:
    unfit = tiny.build(OpenAIGPTConfig(vocab_size=tiny.VOCABULARY, n_embd=32, n_layer=2, n_head=2), seed=1)
    pair = tiny.save_pair(tmp_path, unfit, tiny.build(tiny.FAMILIES["neox"](), seed=1))
    names = (pair.draft, pair.target) if turned else (pair.target, pair.draft)
    assert_refused(PairError, *names, "cannot run a draft tree")


def test_what_is_asked_for_and_does_not_exist_is_refused(tiny_models: TinyModels, tmp_path: Path) -> None:
    pair = tiny_models.pair("neox")
    assert_refused(ModelError, tmp_path / "nowhere", tmp_path / "nowhere", r"there is no folder .*nowhere")
    assert_refused(ConfigError, pair.target, pair.draft, "float12", dtype="float12")
    with pytest.raises((ConfigError, ModelError), match="toaster"):
        loaded(pair.target, pair.draft, device="toaster")
    if not torch.cuda.is_available():
        assert_refused(ModelError, pair.target, pair.draft, device="cuda")


# What a pair is made of


def test_a_draft_with_another_tokenizer_bounds_neither_vocabulary_nor_context(tmp_path: Path) -> None:
    own = tiny.build(tiny.FAMILIES["neox"](vocab_size=280, max_position_embeddings=96), seed=2)
    target = tiny.save(tmp_path / "target", tiny.build(tiny.FAMILIES["neox"](), seed=1), tiny.train_tokenizer())
    draft = tiny.save(tmp_path / "draft", own, tiny.train_tokenizer(tiny.OTHER_SENTENCES))
    pair = loaded(target, draft).pair
    assert (pair.vocabulary, pair.context) == (tiny.VOCABULARY, tiny.CONTEXT)
    assert pair.translation is not None
    assert pair.translation.vocabulary == 270
    line = "^a draft with the tokens of target is needed, but draft has a tokenizer of its own.*$"
    with pytest.raises(ConfigError, match=line):
        _ = pair.draft_model


def test_the_shorter_context_of_the_two_counts(tiny_models: TinyModels, tmp_path: Path) -> None:
    short = tiny.build(tiny.FAMILIES["gpt2"](n_positions=32), seed=1)
    engine = loaded(tiny_models.pair("gpt2").target, tiny.save(tmp_path / "short", short, tiny.train_tokenizer()))
    prompt, methods = "0123456789", ("dynatree", "linear")
    with pytest.raises(PromptError, match="22"):
        next(decode(engine, prompt, RunConfig(methods, 23)))
    race, expected = (
        play(engine, RunConfig(methods, 22), prompt),
        tiny_models.generate(tiny_models.pair("gpt2"), "float32", prompt, 22),
    )
    assert {method: race.tokens(method) for method in methods} == dict.fromkeys(methods, expected)


def test_a_sliding_window_that_is_switched_off_is_no_obstacle(tmp_path: Path) -> None:
    target = tiny.build(tiny.FAMILIES["qwen3"](use_sliding_window=False, sliding_window=8), seed=1)
    pair = tiny.save_pair(tmp_path, target, tiny.kin(target, seed=2))
    loaded(pair.target, pair.draft)


@pytest.mark.parametrize("draft", [None, "lookup"])
def test_a_target_without_a_draft_is_drafted_for_by_lookups(tiny_models: TinyModels, draft: str | None) -> None:
    pair = load_pair(str(tiny_models.pair("neox").target), draft, device="cpu", dtype="float32").pair
    assert (pair.draft, pair.draft_name, pair.vocabulary) == (None, "lookup", pair.target.width)


def test_beside_a_gpu_the_embedded_pair_runs_on_the_cpu_and_says_so() -> None:
    said: list[str] = []
    with fake_cuda():
        loaded = load_pair(report=said.append)
    assert loaded.pair.target.device.type == "cpu"
    assert "for the GPU, give --target and --draft" in said[0]
    assert not any("GPU" in line for line in said[1:])


def test_weights_that_run_natively_are_held_once_and_threads_are_chosen_for_a_pair_that_is_ready_to_run(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = list[Engine]()
    monkeypatch.setattr(Engine, "settle_threads", lambda engine: settled.append(engine))
    pair = tiny_models.pair("neox")
    engine = loaded(pair.target, pair.draft)
    assert settled == [engine]
    assert (engine.pair.target.hf.loaded, engine.pair.draft_model.hf.loaded) == (None, None)


def test_a_module_that_comes_back_goes_by_the_settings_of_its_pair(tiny_models: TinyModels) -> None:
    pair = tiny_models.ending("neox", eos_token_id=7, repetition_penalty=1.5)
    target = loaded(pair.target, pair.draft).pair.target
    assert target.hf.module.generation_config is target.hf.generation
    assert target.hf.generation.eos_token_id == 7
    assert target.hf.generation.repetition_penalty != 1.5


@pytest.mark.parametrize("beyond", [-1, 10**6, 2**70])
def test_an_end_of_text_that_the_model_never_writes_is_left_out(tiny_models: TinyModels, beyond: int) -> None:
    pair = loaded(tiny_models.ending("llama", eos_token_id=[7, beyond]).target, "lookup").pair
    assert pair.eos == {7}
    assert pair.target.hf.generation.eos_token_id == 7
    assert loaded(tiny_models.ending("llama", eos_token_id=[]).target, "lookup").pair.eos == frozenset()


# A draft in a dtype of its own


def drafting(models: TinyModels, draft_dtype: str, dtype: str = "float32", **how: Any) -> Engine:
    return drafting_in(draft_dtype, **how)(models, "neox", dtype)


@pytest.mark.parametrize(("rules", "temperature"), [(Linear(), 0.8), (DynaTree(), 0.0)], ids=["linear", "dynatree"])
def test_rounds_on_the_device_are_those_of_the_host(
    tiny_models: TinyModels, rules: Linear | DynaTree, temperature: float
) -> None:
    engine = recorded(drafting(tiny_models, "float32", "float64"))
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    match(engine.sampled(3, Schedule(Sampling(temperature))), prompt, 30, rules)


def test_each_model_computes_in_its_own_and_the_run_names_both(tiny_models: TinyModels) -> None:
    engine = drafting(tiny_models, "bfloat16")
    assert (engine.pair.target.dtype, engine.pair.draft_model.dtype) == (torch.float32, torch.bfloat16)
    run = next(decode(engine, PROMPT, RunConfig(("ar",), 1)))
    assert isinstance(run, Run)
    assert (run.dtype, run.draft_dtype, run.arithmetic) == ("float32", "bfloat16", "float32, draft bfloat16")
    assert drafting(tiny_models, "auto").pair.draft_model.dtype is torch.float32


def test_the_words_name_the_draft_only_where_it_differs() -> None:
    assert arithmetic("float32", "float32") == arithmetic("float32", "") == "float32"
    assert arithmetic("bfloat16", "float16", exact=True) == "bfloat16 exact, draft float16"


@pytest.mark.parametrize(
    ("dtype", "how", "line"),
    [
        ("int4", {}, r"the draft's dtype is 'int4'; give auto, float64, float32"),
        ("float64", {"exact": True}, "--exact sums in float64"),
    ],
)
def test_an_unknown_one_and_one_that_leaves_no_room_to_be_exact_are_refused(
    tiny_models: TinyModels, dtype: str, how: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError, match=line):
        drafting(tiny_models, dtype, **how)
