"""Pairs with an EAGLE-3 head are loaded, decode and are shown like others; options for whole drafts are refused."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, ModelError, PairError
from decoder.events import Run
from decoder.heads.eagle3 import Head
from decoder.methods import METHODS
from decoder.methods.delayed import Delayed
from decoder.run.decoding_path import decoding_path
from decoder.selector.stored import fingerprint
from decoder.verify.names import Drafting
from dynatui.lab.commands import bench, bench_options
from dynatui.lab.tuning.drafts import cost_ratio
from dynatui.main import main
from tests.decoder.makers import Played, TinyModels
from tests.eagle3_checkpoints import FAVOURITES, LAYOUTS, name

WHOLE = ("hf", "alg1", "delayed", "streaming")
"""Methods that need a whole model as draft."""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.loaded(tiny_models.pair(name("llama", "flat")), "float32")


def test_a_head_stands_in_the_draft_s_place(engine: Engine) -> None:
    pair = engine.pair
    assert pair.draft is None
    assert pair.head is not None
    assert (pair.draft_name, pair.draft_dtype, pair.vocabulary) == ("head", "float32", 288)
    assert decoding_path(engine).reason == "target: native CPU kernels; draft: EAGLE-3 head"
    assert engine.slots is None
    (run,) = [event for event in decode(engine, "The tree", RunConfig(("ar",), 2)) if isinstance(event, Run)]
    assert run.draft == "head"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_head_has_a_dtype_of_its_own(tiny_models: TinyModels, dtype: str) -> None:
    saved = tiny_models.pair(name("llama", "nested"))
    engine = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32", draft_dtype=dtype)
    assert (engine.pair.dtype, engine.pair.draft_dtype) == ("float32", dtype)
    played = Played(list(decode(engine, "The tree grows", RunConfig(("ar", "dynatree"), 40))))
    assert played.tokens("dynatree") == played.tokens("ar")


@pytest.mark.parametrize("method", WHOLE)
def test_methods_that_need_a_whole_draft_are_refused_by_name(engine: Engine, method: str) -> None:
    with pytest.raises(ConfigError, match=f"^{method} cannot run without a draft model") as refusal:
        next(decode(engine, "The tree", RunConfig(("ar", method), 4, temperature=0.5)))
    assert "\n" not in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_no_other_method_needs_one(engine: Engine) -> None:
    others = tuple(method for method in METHODS if method not in WHOLE)
    assert {method for method in METHODS if METHODS[method].needs_model} == set(WHOLE)
    played = Played(list(decode(engine, "The tree grows", RunConfig(others, 12))))
    assert {tuple(played.tokens(method)) for method in others} == {tuple(played.tokens("ar"))}


def test_a_selector_needs_a_whole_draft(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="a whole model is needed as draft"):
        fingerprint(engine.pair)
    with pytest.raises(ConfigError, match="delayed cannot run without"):
        list(decode(engine, "a b", RunConfig(("delayed",), 4, delayed=Delayed("traversal", Drafting.DELAYED))))


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The only line of the output, which a refused command writes to stderr."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("bench speed --methods alg1 --prompt a", "alg1 cannot run without a draft model"),
        (
            "bench speed --hostile --prompt a",
            "a draft that guesses at random needs a whole model as draft, but head",
        ),
        ("bench speed --context 9", "a draft that guesses at random needs a whole model as draft, but head"),
        ("bench paper --output OUT", "dynatui bench paper needs a whole model as draft, but head is a drafting head"),
        ("bench sampling --output OUT", "dynatui bench sampling needs a whole model as draft, but head"),
        ("bench sweep thresholds --output OUT --prompt a", "dynatui bench sweep needs a whole model as draft, but"),
        ("--headless --prompt a --methods ar,alg1", "alg1 cannot run without a draft model"),
        ("--headless --prompt a --compile", "--compile needs a draft model"),
    ],
)
def test_what_needs_a_whole_draft_is_refused_in_one_line_before_anything_is_loaded(
    tiny_models: TinyModels, arguments: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tiny_models.pair(name("llama", "nested"))
    models = ["--target", str(saved.target), "--draft", str(saved.draft), "--device", "cpu"]
    given = [word.replace("OUT", str(tmp_path / "out")) for word in arguments.split()]
    assert refused([*given, *models], capsys).startswith(f"dynatui: {line}")


def test_all_methods_that_go_with_a_head_are_measured_where_none_is_named(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair(name("llama", "flat"))
    methods = bench._with_draft(tuple(bench_options.all_methods().split(",")), str(saved.draft))
    assert set(METHODS) - set(methods) == set(WHOLE)


def test_what_a_head_costs_is_measured(engine: Engine) -> None:
    assert cost_ratio(engine) > 0


def test_a_head_and_a_target_that_do_not_fit_are_refused_in_one_line(tiny_models: TinyModels) -> None:
    head = tiny_models.pair(name("llama", "flat")).draft
    with pytest.raises(PairError, match="counted from 0") as refusal:
        load_pair(str(tiny_models.pair("llama").target), str(head), device="cpu", dtype="float32")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"vocab_size": 300}, "was made for a vocabulary of 300 tokens, but the vocabulary of target has 288"),
        ({"hidden_size": 48}, "was made for hidden rows of width 48, but those of target have width 32"),
    ],
)
def test_a_head_of_another_target_is_refused_before_that_is_loaded(
    tiny_models: TinyModels, tmp_path: Path, change: dict[str, int], line: str
) -> None:
    saved, said, other = tiny_models.pair(name("llama", "nested")), list[str](), tmp_path / "head"
    shutil.copytree(saved.draft, other)
    fields = json.loads((other / "config.json").read_text())
    fields["transformer_layer_config"] |= change
    (other / "config.json").write_text(json.dumps(fields))
    with pytest.raises(PairError, match=line):
        load_pair(str(saved.target), str(other), device="cpu", report=said.append)
    assert not said


def test_a_head_is_no_target(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair(name("llama", "nested"))
    with pytest.raises(ModelError) as refusal:
        load_pair(str(saved.draft), str(saved.target), device="cpu", dtype="float32")
    assert "\n" not in str(refusal.value)


def test_a_target_of_a_wider_head_matrix_is_read_with_its_own_embedding(tiny_models: TinyModels) -> None:
    head = tiny_models.loaded(tiny_models.pair(name("llama", "nested, of another width")), "float32").pair.head
    assert isinstance(head, Head)
    assert head.embed_tokens.weight.shape == (288, LAYOUTS["nested, of another width"].width)
    assert head.tokens is not None
    assert head.tokens.dtype is torch.int64
    assert len(head.tokens) == len(FAVOURITES)


def test_the_command_line_refuses_a_broken_head_in_one_line(
    tiny_models: TinyModels, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved = tiny_models.pair(name("neox", "nested"))
    broken = tmp_path / "broken"
    shutil.copytree(saved.draft, broken)
    (broken / "model.safetensors").unlink()
    models = ["--target", str(saved.target), "--draft", str(broken), "--device", "cpu", "--dtype", "float32"]
    assert main([*models, "--prompt", "a b", "--headless"]) == 3
    assert "pickled" in capsys.readouterr().err.splitlines()[-1]
