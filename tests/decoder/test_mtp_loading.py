"""A target with its own MTP layer as draft runs and is recorded like any pair; unsupported uses are refused."""

import json
import os
from pathlib import Path

import pytest

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Run
from decoder.models.drafts import is_model_free
from decoder.run.decoding_path import decoding_path
from dynatui.cli.doctor import CHECKS
from dynatui.cli.doctor_machine import Case
from dynatui.lab.commands import bench, bench_options
from dynatui.lab.tuning.drafts import cost_ratio
from dynatui.main import main
from dynatui.session import Models
from tests.decoder.makers import Played, TinyModels
from tests.decoder.mtp_checkpoints import name

WHOLE = {"hf", "alg1", "delayed", "streaming"}
"""Methods that need a whole model as draft."""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.loaded(tiny_models.pair(name("glm4_moe")), "float32")


def test_the_layer_stands_in_the_draft_s_place(engine: Engine) -> None:
    pair = engine.pair
    assert (pair.draft, pair.draft_name, pair.draft_dtype, pair.vocabulary) == (None, "mtp", "float32", 288)
    assert decoding_path(engine).reason == "target: Hugging Face module; draft: MTP layer"
    assert engine.slots is None
    (run,) = [event for event in decode(engine, "The tree", RunConfig(("ar",), 2)) if isinstance(event, Run)]
    assert run.draft == "mtp"
    assert cost_ratio(engine) > 0


def test_auto_drafts_with_the_layer(engine: Engine) -> None:
    played = Played(list(decode(engine, "The tree grows", RunConfig(("ar", "auto"), 40))))
    assert played.tokens("auto") == played.tokens("ar")


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
        ("--headless --prompt a --methods ar,alg1", "alg1 cannot run without a draft model"),
        ("--headless --prompt a --compile", "--compile needs a draft model"),
        ("bench speed --hostile --prompt a", "a draft that guesses at random needs a whole model as draft, but mtp is"),
        (
            "bench paper --output OUT",
            "dynatui bench paper needs a whole model as draft, but mtp is a drafting head",
        ),
    ],
)
def test_what_needs_a_whole_draft_is_refused_in_one_line(
    tiny_models: TinyModels, arguments: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tiny_models.pair(name("glm4_moe")).target)
    given = [word.replace("OUT", str(tmp_path / "out")) for word in arguments.split()]
    told = refused([*given, "--target", target, "--draft", "mtp", "--device", "cpu"], capsys)
    assert told.startswith(f"dynatui: {line}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "--headless --prompt a --target LLAMA --draft mtp",
            "--draft mtp needs an MTP layer in the target's",
        ),
        ("--headless --prompt a --draft mtp", "a draft model needs its target"),
    ],
)
def test_a_target_without_a_layer_is_refused_in_one_line(
    tiny_models: TinyModels, arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    llama = str(tiny_models.pair("llama").target)
    told = refused([*arguments.replace("LLAMA", llama).split(), "--device", "cpu"], capsys)
    assert told.startswith(f"dynatui: {line}")


def test_several_processes_cannot_share_the_target(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.loading.ranks_of", lambda count: range(count))
    monkeypatch.setattr("decoder.run.loading._ranks", lambda *_, **__: object())
    with pytest.raises(ConfigError, match=r"^a drafting head reads .*; give a draft model or --draft l"):
        load_pair(str(tiny_models.pair(name("glm4_moe")).target), "mtp", device="cpu", tensor_parallel=2)


def test_the_command_line_records_and_replays_a_run(
    tiny_models: TinyModels, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept, target = tmp_path / "run.jsonl", str(tiny_models.pair(name("qwen3_5_text")).target)
    models = ["--target", target, "--draft", "mtp", "--device", "cpu", "--dtype", "float32"]
    asked = ["--prompt", "The tree grows", "--max-new-tokens", "24", "--headless", "--record", str(kept)]
    assert main([*models, *asked, "--methods", "ar,linear,fixed,bestfirst,dynatree,auto"]) == 0
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert next(line for line in lines if line["type"] == "run")["draft"] == "mtp"
    summary = lines[-1]["methods"]
    assert all(figures["identical_to_ar"] in (True, None) for figures in summary.values())
    assert summary["fixed"]["drafted"] > 0
    capsys.readouterr()
    assert main(["replay", str(kept), "--headless"]) == 0


def test_all_other_methods_are_measured_where_none_is_named() -> None:
    assert is_model_free("mtp")
    methods = bench._with_draft(tuple(bench_options.all_methods().split(",")), "mtp")
    assert not WHOLE & set(methods)


def told_by_doctor(probe: str, target: Path) -> str:
    case = Case(models=Models(str(target), "mtp"), log=None, settings=lambda: "nothing is set")
    return "\n".join(f"{finding.verdict}: {finding.text}" for finding in CHECKS[probe](case))


def test_the_doctor_finds_the_layer(tiny_models: TinyModels) -> None:
    target = tiny_models.pair(name("qwen3_next")).target
    told = told_by_doctor("models", target)
    assert "ok: draft mtp: the target's checkpoint has an MTP layer: mtp.fc.weight and other weights" in told
    assert "problem" not in told
    assert "tokenizer" not in told
    assert "driven by: host, Hugging Face module" in told_by_doctor("rounds", target)
    assert "problem" not in told_by_doctor("devices", target)


def test_the_doctor_misses_a_layer(tiny_models: TinyModels) -> None:
    told = told_by_doctor("models", tiny_models.pair("llama").target)
    assert "problem: draft: --draft mtp needs an MTP layer in the target's checkpoint" in told
