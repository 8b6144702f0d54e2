"""Pairs with a drafting head of any kind are loaded, decode, and are recorded and shown like others; what needs a whole
draft is refused.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, ModelError, PairError
from decoder.events import Run
from decoder.methods import METHODS
from decoder.methods.delayed import Delayed
from decoder.models.heads import is_model_free
from decoder.run.decoding_path import decoding_path
from decoder.selector.policy import fingerprint
from decoder.verify.names import Drafting
from dynatui.lab.commands import bench
from dynatui.lab.tuning.profiling import pass_s
from dynatui.main import main
from dynatui.session import Models
from tests import heads
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.makers import TinyModels, play
from tests.dynatui.cli import doctor_case
from tests.head_files import reconfigure, refused

WHOLE = ("hf", "alg1", "delayed", "streaming")
"""Methods that need a whole model as draft."""
FLAT, NESTED = heads.name("llama", "flat"), heads.name("llama", "nested")
Refused = Callable[[list[str]], str]


@dataclass(frozen=True)
class Kind:
    pair: str
    draft: str
    reason: str

    def models(self, models: TinyModels) -> tuple[str, str]:
        """Names of target and draft, as a user gives them."""
        saved = models.pair(self.pair)
        return str(saved.target), "mtp" if self.draft == "mtp" else str(saved.draft)


KINDS = {
    "EAGLE-3": Kind(FLAT, "head", "target: native CPU kernels; draft: EAGLE-3 head"),
    "DFlash": Kind(heads.name("llama", "z-lab"), "head", "target: native CPU kernels; draft: DFlash head"),
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
    return tiny_models.engine(kind.pair)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Refused:
    """A function that gives a command, and returns the only line of the output, which tells that it is refused."""

    def run(arguments: list[str]) -> str:
        assert main(arguments) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.count("\n") == 1
        return output.err

    return run


def test_a_head_stands_in_the_draft_s_place(engine: Engine, kind: Kind) -> None:
    pair = engine.pair
    assert pair.head is not None
    assert (pair.draft, pair.draft_name, pair.draft_dtype, pair.vocabulary) == (None, kind.draft, "float32", 288)
    assert decoding_path(engine).reason == kind.reason
    assert engine.slots is None
    (run,) = [event for event in decode(engine, "The tree", RunConfig(("ar",), 2)) if isinstance(event, Run)]
    assert run.draft == kind.draft
    assert pass_s(engine, 64) > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [NESTED, heads.name("neox", "DFlash2")])
def test_a_head_has_a_dtype_of_its_own(tiny_models: TinyModels, name: str, dtype: str) -> None:
    saved = tiny_models.pair(name)
    engine = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32", draft_dtype=dtype)
    assert (engine.pair.dtype, engine.pair.draft_dtype) == ("float32", dtype)
    played = play(engine, RunConfig(("ar", "dynatree"), 40))
    assert played.tokens("dynatree") == played.tokens("ar")


def test_methods_that_need_a_whole_draft_are_refused_by_name_and_no_others(engine: Engine) -> None:
    assert {method for method in METHODS if METHODS[method].needs_model} == set(WHOLE)
    for method in WHOLE:
        with refused(ConfigError, f"{method} cannot run without a draft model"):
            next(decode(engine, "The tree", RunConfig(("ar", method), 4, temperature=0.5)))
    others = tuple(method for method in METHODS if method not in WHOLE)
    played = play(engine, RunConfig(others, 12))
    assert {tuple(played.tokens(method)) for method in others} == {tuple(played.tokens("ar"))}


def test_all_other_methods_are_measured_where_none_is_named(tiny_models: TinyModels, kind: Kind) -> None:
    _, draft = kind.models(tiny_models)
    assert is_model_free(draft)
    methods = bench._with_draft(tuple(bench.all_methods().split(",")), draft)
    assert set(METHODS) - set(methods) == set(WHOLE)


def test_a_selector_needs_a_whole_draft(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine(FLAT)
    with pytest.raises(ConfigError, match="a whole model is needed as draft"):
        fingerprint(engine.pair)
    with pytest.raises(ConfigError, match="delayed cannot run without"):
        list(decode(engine, "a b", RunConfig(("delayed",), 4, delayed=Delayed("traversal", Drafting.DELAYED))))


def test_what_levels_cost_is_measured_beside_the_pass(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine(heads.name("llama", "DeepSpec"))
    context = engine.pair.context // 2
    assert 0 < engine.costs_of(context).draft.seconds(1) < pass_s(engine, context)


# Command lines


@pytest.mark.parametrize(
    ("pair", "draft"),
    [
        (heads.name("neox", "nested"), "head"),
        (heads.name("qwen3", "speculators, DSpark"), "head"),
        (mtp.name("qwen3_5_text"), "mtp"),
    ],
)
def test_the_command_line_decodes_with_a_head(
    tiny_models: TinyModels, capsys: pytest.CaptureFixture[str], tmp_path: Path, pair: str, draft: str
) -> None:
    (target, draft), kept = Kind(pair, draft, "").models(tiny_models), tmp_path / "run.jsonl"
    models = ["--target", target, "--draft", draft, "--device", "cpu", "--dtype", "float32"]
    asked = ["--prompt", "The tree grows", "--max-new-tokens", "24", "--headless", "--record", str(kept)]
    assert main([*models, *asked, "--methods", "ar,linear,fixed,bestfirst,dynatree,auto"]) == 0
    summary = json.loads(kept.read_text().splitlines()[-1])
    assert all(figures["identical_to_ar"] in (True, None) for figures in summary["methods"].values())
    assert summary["methods"]["fixed"]["drafted"] > 0
    capsys.readouterr()
    assert main(["replay", str(kept), "--headless"]) == 0
    capsys.readouterr()
    assert main([*models, *asked[:-2], "--methods", "ar,hf"]) == 2
    assert "hf cannot run without a draft model" in capsys.readouterr().err.splitlines()[-1]


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
    tiny_models: TinyModels, told: Refused, name: str, arguments: str, line: str, tmp_path: Path
) -> None:
    target, draft = KINDS[name].models(tiny_models)
    given = [word.replace("OUT", str(tmp_path / "out")) for word in arguments.split()]
    said = told([*given, "--target", target, "--draft", draft, "--device", "cpu"])
    assert said.startswith(f"dynatui: {line.replace('DRAFT', KINDS[name].draft)}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--target LLAMA --draft mtp", "--draft mtp needs an MTP layer in the target's"),
        ("--draft mtp", "a draft model needs its target"),
    ],
)
def test_a_target_without_an_mtp_layer_is_refused_in_one_line(
    tiny_models: TinyModels, told: Refused, arguments: str, line: str
) -> None:
    given = arguments.replace("LLAMA", str(tiny_models.pair("llama").target)).split()
    assert told(["--headless", "--prompt", "a", *given, "--device", "cpu"]).startswith(f"dynatui: {line}")


def test_a_broken_head_is_refused_in_one_line(
    tiny_models: TinyModels, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved, broken = tiny_models.pair(heads.name("neox", "nested")), tmp_path / "broken"
    shutil.copytree(saved.draft, broken)
    (broken / "model.safetensors").unlink()
    strange = heads.LAYOUTS["z-lab"].save(tmp_path / "strange")
    reconfigure(strange, {"attention_sink_bias": True})
    for target, head, line in (
        (saved.target, broken, "pickled"),
        (tiny_models.pair("llama").target, strange, "attention_sink_bias is True"),
    ):
        models = ["--target", str(target), "--draft", str(head), "--device", "cpu", "--dtype", "float32"]
        assert main([*models, "--prompt", "a b", "--headless"]) == 3
        assert line in capsys.readouterr().err.splitlines()[-1]


# Pairs that do not fit


@pytest.mark.parametrize(
    ("layout", "change", "line"),
    [
        ("flat", {"vocab_size": 300}, "made for a vocabulary of 300 tokens, but the vocabulary of target has 288"),
        ("z-lab", {"hidden_size": 48}, "made for hidden rows of width 48, but those of target have width 32"),
    ],
)
def test_a_head_of_another_target_is_refused_before_that_is_loaded(
    tiny_models: TinyModels, tmp_path: Path, layout: str, change: dict[str, Any], line: str
) -> None:
    reconfigure(head := heads.LAYOUTS[layout].save(tmp_path / "head"), change)
    with refused(PairError, line):
        target = str(tiny_models.pair(NESTED).target)
        load_pair(target, str(head), device="cpu", report=lambda _: pytest.fail("it is loaded"))


def test_a_head_is_no_target(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair(NESTED)
    with refused(ModelError):
        load_pair(str(saved.draft), str(saved.target), device="cpu", dtype="float32")


def told_by_doctor(probe: str, target: Path) -> str:
    return doctor_case.said(doctor_case.found(probe, Models(str(target), "mtp")))


def test_the_doctor_finds_an_mtp_layer(tiny_models: TinyModels) -> None:
    target = tiny_models.pair(mtp.name("qwen3_next")).target
    told = told_by_doctor("models", target)
    assert "ok: draft mtp: the target's checkpoint has an MTP layer: mtp.fc.weight and other weights" in told
    assert "problem" not in told
    assert "tokenizer" not in told
    assert "driven by: host, Hugging Face module" in told_by_doctor("rounds", target)
    assert "problem" not in told_by_doctor("devices", target)
    missed = told_by_doctor("models", tiny_models.pair("llama").target)
    assert "problem: draft: --draft mtp needs an MTP layer in the target's checkpoint" in missed
