"""Pairs with a drafting head of any kind are loaded, decode and are shown like others; what needs a whole draft is
refused.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
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
from decoder.models.heads import is_model_free
from decoder.run.decoding_path import decoding_path
from decoder.selector.stored import fingerprint
from decoder.verify.names import Drafting
from dynatui.lab.commands import bench, bench_options
from dynatui.lab.tuning.drafts import cost_ratio
from dynatui.main import main
from dynatui.session import Models
from tests import dflash_checkpoints as dflash
from tests import eagle3_checkpoints as eagle3
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.makers import Played, TinyModels
from tests.dynatui.cli import doctor_case
from tests.head_files import reconfigure

WHOLE = ("hf", "alg1", "delayed", "streaming")
"""Methods that need a whole model as draft."""


@dataclass(frozen=True)
class Kind:
    pair: str
    draft: str
    reason: str


KINDS = {
    "EAGLE-3": Kind(eagle3.name("llama", "flat"), "head", "target: native CPU kernels; draft: EAGLE-3 head"),
    "DFlash": Kind(dflash.name("llama", "z-lab"), "head", "target: native CPU kernels; draft: DFlash head"),
    "MTP": Kind(mtp.name("glm4_moe"), "mtp", "target: Hugging Face module; draft: MTP layer"),
}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def engine(tiny_models: TinyModels, kind: Kind) -> Engine:
    return tiny_models.loaded(tiny_models.pair(kind.pair), "float32")


def models_of(tiny_models: TinyModels, kind: Kind) -> tuple[str, str]:
    saved = tiny_models.pair(kind.pair)
    return str(saved.target), "mtp" if kind.draft == "mtp" else str(saved.draft)


def test_a_head_stands_in_the_draft_s_place(engine: Engine, kind: Kind) -> None:
    pair = engine.pair
    assert pair.head is not None
    assert (pair.draft, pair.draft_name, pair.draft_dtype, pair.vocabulary) == (None, kind.draft, "float32", 288)
    assert decoding_path(engine).reason == kind.reason
    assert engine.slots is None
    (run,) = [event for event in decode(engine, "The tree", RunConfig(("ar",), 2)) if isinstance(event, Run)]
    assert run.draft == kind.draft
    assert cost_ratio(engine) > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [eagle3.name("llama", "nested"), dflash.name("neox", "DFlash2")])
def test_a_head_has_a_dtype_of_its_own(tiny_models: TinyModels, name: str, dtype: str) -> None:
    saved = tiny_models.pair(name)
    engine = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32", draft_dtype=dtype)
    assert (engine.pair.dtype, engine.pair.draft_dtype) == ("float32", dtype)
    played = Played(list(decode(engine, "The tree grows", RunConfig(("ar", "dynatree"), 40))))
    assert played.tokens("dynatree") == played.tokens("ar")


def test_methods_that_need_a_whole_draft_are_refused_by_name_and_no_others(engine: Engine) -> None:
    assert {method for method in METHODS if METHODS[method].needs_model} == set(WHOLE)
    for method in WHOLE:
        with pytest.raises(ConfigError, match=f"^{method} cannot run without a draft model") as refusal:
            next(decode(engine, "The tree", RunConfig(("ar", method), 4, temperature=0.5)))
        assert "\n" not in str(refusal.value)
    others = tuple(method for method in METHODS if method not in WHOLE)
    played = Played(list(decode(engine, "The tree grows", RunConfig(others, 12))))
    assert {tuple(played.tokens(method)) for method in others} == {tuple(played.tokens("ar"))}


def test_all_other_methods_are_measured_where_none_is_named(tiny_models: TinyModels, kind: Kind) -> None:
    _, draft = models_of(tiny_models, kind)
    assert is_model_free(draft)
    methods = bench._with_draft(tuple(bench_options.all_methods().split(",")), draft)
    assert set(METHODS) - set(methods) == set(WHOLE)


def test_a_selector_needs_a_whole_draft(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(KINDS["EAGLE-3"].pair), "float32")
    with pytest.raises(ConfigError, match="a whole model is needed as draft"):
        fingerprint(engine.pair)
    with pytest.raises(ConfigError, match="delayed cannot run without"):
        list(decode(engine, "a b", RunConfig(("delayed",), 4, delayed=Delayed("traversal", Drafting.DELAYED))))


def test_what_levels_cost_is_measured_beside_the_pass(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(dflash.name("llama", "DeepSpec")), "float32")
    costs = engine.costs_of(engine.pair.context // 2)
    assert 0 < costs.draft.seconds(1) / costs.plain.seconds(1) < cost_ratio(engine)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The only line of the output, which a refused command writes to stderr."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


@pytest.mark.parametrize("name", ["EAGLE-3", "MTP"])
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("bench speed --methods alg1 --prompt a", "alg1 cannot run without a draft model"),
        ("bench speed --hostile --prompt a", "a draft that guesses at random needs a whole model as draft, but DRAFT"),
        ("bench speed --context 9", "a draft that guesses at random needs a whole model as draft, but DRAFT"),
        ("bench paper --output OUT", "dynatui bench paper needs a whole model as draft, but DRAFT is a drafting head"),
        ("bench sampling --output OUT", "dynatui bench sampling needs a whole model as draft, but DRAFT"),
        ("bench sweep thresholds --output OUT --prompt a", "dynatui bench sweep needs a whole model as draft, but"),
        ("--headless --prompt a --methods ar,alg1", "alg1 cannot run without a draft model"),
        ("--headless --prompt a --compile", "--compile needs a draft model"),
    ],
)
def test_what_needs_a_whole_draft_is_refused_in_one_line_before_anything_is_loaded(
    tiny_models: TinyModels, name: str, arguments: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = models_of(tiny_models, KINDS[name])
    given = [word.replace("OUT", str(tmp_path / "out")) for word in arguments.split()]
    told = refused([*given, "--target", target, "--draft", draft, "--device", "cpu"], capsys)
    assert told.startswith(f"dynatui: {line.replace('DRAFT', KINDS[name].draft)}")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"vocab_size": 300}, "was made for a vocabulary of 300 tokens, but the vocabulary of target has 288"),
        ({"hidden_size": 48}, "was made for hidden rows of width 48, but those of target have width 32"),
    ],
)
def test_a_head_of_another_target_is_refused_before_that_is_loaded(
    tiny_models: TinyModels, tmp_path: Path, change: Mapping[str, int], line: str
) -> None:
    saved, said, other = tiny_models.pair(eagle3.name("llama", "nested")), list[str](), tmp_path / "head"
    shutil.copytree(saved.draft, other)
    fields = json.loads((other / "config.json").read_text())
    fields["transformer_layer_config"] |= change
    (other / "config.json").write_text(json.dumps(fields))
    with pytest.raises(PairError, match=line):
        load_pair(str(saved.target), str(other), device="cpu", report=said.append)
    if "vocab_size" in change:
        head = dflash.save_head(tmp_path / "dflash", dflash.LAYOUTS["z-lab"])
        reconfigure(head, dict(change))
        with pytest.raises(PairError, match=line):
            load_pair(str(saved.target), str(head), device="cpu", report=said.append)
    assert not said


def test_a_head_and_a_target_that_do_not_fit_are_refused_in_one_line(tiny_models: TinyModels) -> None:
    head = tiny_models.pair(eagle3.name("llama", "flat")).draft
    with pytest.raises(PairError, match="counted from 0") as refusal:
        load_pair(str(tiny_models.pair("llama").target), str(head), device="cpu", dtype="float32")
    assert "\n" not in str(refusal.value)


def test_a_head_is_no_target(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair(eagle3.name("llama", "nested"))
    with pytest.raises(ModelError) as refusal:
        load_pair(str(saved.draft), str(saved.target), device="cpu", dtype="float32")
    assert "\n" not in str(refusal.value)


def test_a_target_of_a_wider_head_matrix_is_read_with_its_own_embedding(tiny_models: TinyModels) -> None:
    name = "nested, of another width"
    head = tiny_models.loaded(tiny_models.pair(eagle3.name("llama", name)), "float32").pair.head
    assert isinstance(head, Head)
    assert head.embed_tokens.weight.shape == (288, eagle3.LAYOUTS[name].width)
    assert head.tokens is not None
    assert head.tokens.dtype is torch.int64
    assert len(head.tokens) == len(eagle3.FAVOURITES)


def test_the_command_line_refuses_a_broken_head_in_one_line(
    tiny_models: TinyModels, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved, broken = tiny_models.pair(eagle3.name("neox", "nested")), tmp_path / "broken"
    shutil.copytree(saved.draft, broken)
    (broken / "model.safetensors").unlink()
    strange = dflash.save_head(tmp_path / "strange", dflash.LAYOUTS["z-lab"])
    reconfigure(strange, {"attention_sink_bias": True})
    for target, head, told in (
        (saved.target, broken, "pickled"),
        (tiny_models.pair("llama").target, strange, "attention_sink_bias is True"),
    ):
        models = ["--target", str(target), "--draft", str(head), "--device", "cpu", "--dtype", "float32"]
        assert main([*models, "--prompt", "a b", "--headless"]) == 3
        assert told in capsys.readouterr().err.splitlines()[-1]


# The MTP layer of a target


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--target LLAMA --draft mtp", "--draft mtp needs an MTP layer in the target's"),
        ("--draft mtp", "a draft model needs its target"),
    ],
)
def test_a_target_without_a_layer_is_refused_in_one_line(
    tiny_models: TinyModels, arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    llama = str(tiny_models.pair("llama").target)
    given = ["--headless", "--prompt", "a", *arguments.replace("LLAMA", llama).split(), "--device", "cpu"]
    assert refused(given, capsys).startswith(f"dynatui: {line}")


def told_by_doctor(probe: str, target: Path) -> str:
    return doctor_case.said(doctor_case.found(probe, models=Models(str(target), "mtp")))


def test_the_doctor_finds_the_layer(tiny_models: TinyModels) -> None:
    target = tiny_models.pair(mtp.name("qwen3_next")).target
    told = told_by_doctor("models", target)
    assert "ok: draft mtp: the target's checkpoint has an MTP layer: mtp.fc.weight and other weights" in told
    assert "problem" not in told
    assert "tokenizer" not in told
    assert "driven by: host, Hugging Face module" in told_by_doctor("rounds", target)
    assert "problem" not in told_by_doctor("devices", target)
    missed = told_by_doctor("models", tiny_models.pair("llama").target)
    assert "problem: draft: --draft mtp needs an MTP layer in the target's checkpoint" in missed
