"""Tests of `dynatui doctor`: it names problems and remedies, and no problem stops it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

import decoder
from decoder.errors import ConfigError
from decoder.forward.compiled import library as libraries
from decoder.run.decoding_path import DecodingPath
from dynatui.cli import doctor_machine
from dynatui.cli.doctor import CHECKS, examine, page
from dynatui.cli.doctor_machine import CheckResult, DoctorInput
from dynatui.gpu import Gpu
from dynatui.session import Models
from tests import dflash_checkpoints, eagle3_checkpoints, tiny
from tests.dynatui.cli.doctor_case import case, found, said

PROGRAM = [sys.executable, "-m", "dynatui", "doctor"]


def fine(_case: DoctorInput) -> Iterator[CheckResult]:
    yield CheckResult("ok", "fine")
    yield CheckResult("note", "but slow", "wait")


def refusing(_case: DoctorInput) -> Iterator[CheckResult]:
    yield CheckResult("ok", "begun")
    raise ConfigError("no device; give one")


def crashing(_case: DoctorInput) -> Iterator[CheckResult]:
    raise RuntimeError("\x1b[2J\nboom")
    yield


def test_the_report_names_topic_verdict_and_remedy() -> None:
    report = examine(case(), {"first": fine})
    assert report.ok
    assert (
        page(report) == "first\n  ok       fine\n  note     but slow; wait\nverdict: everything that is needed works\n"
    )


def test_a_probe_that_fails_hides_neither_what_it_found_nor_the_others() -> None:
    report = examine(case(), {"a": refusing, "b": crashing, "c": fine})
    assert not report.ok
    assert [(finding.topic, finding.verdict) for finding in report.findings] == [
        ("a", "ok"),
        ("a", "problem"),
        ("b", "problem"),
        ("c", "ok"),
        ("c", "note"),
    ]
    text = page(report)
    assert "no device; give one" in text
    assert "RuntimeError: ␛[2J" in text
    assert text.endswith("verdict: 2 problems, see above\n")


def test_without_a_terminal_that_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "is_terminal", lambda name: name != "stdout")
    assert "note: dynatui runs without a screen here: no terminal is connected to stdout" in said(found("terminal"))


@pytest.mark.parametrize(
    ("term", "colorterm", "no_color", "expected"),
    [
        ("xterm-256color", "truecolor", "", "ok: 16 million colours"),
        ("xterm-256color", "", "", "ok: 256 colours"),
        ("linux", "", "", "ok: 16 colours"),
        ("xterm", "", "1", "ok: no colours, because NO_COLOR is set"),
        ("dumb", "", "", "note: TERM is dumb, so there is no screen"),
        ("", "", "", "note: TERM is not set, so there is no screen"),
    ],
)
def test_colours_are_those_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, term: str, colorterm: str, no_color: str, expected: str
) -> None:
    for name, value in (("TERM", term), ("COLORTERM", colorterm), ("NO_COLOR", no_color)):
        monkeypatch.setenv(name, value)
    assert expected in said(found("terminal"))


@pytest.mark.parametrize(
    ("size", "expected"),
    [((120, 40), "ok: 120x40 characters"), ((79, 24), "note: 79x24 characters; panels need at least 80x24 characters")],
)
def test_a_small_terminal_is_a_note(monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], expected: str) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _descriptor: os.terminal_size(size))
    assert expected in said(found("terminal"))


def test_the_line_and_what_keeps_it_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "a b c d")
    monkeypatch.setenv("TMUX", "/tmp/tmux")  # noqa: S108 - a name, not a file
    text = said(found("terminal"))
    assert "over SSH: 5 frames a second" in text
    assert "inside tmux" in text


def test_the_packages_are_those_that_dynatui_needs() -> None:
    (finding,) = found("versions")
    assert finding.verdict == "ok"
    assert f"textual {metadata.version('textual')}" in finding.text
    assert f"torch {metadata.version('torch')}" in finding.text
    assert "pytest" not in finding.text


def test_a_package_that_is_missing_or_too_old_is_a_problem_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "rich":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "textual" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    text = said(found("versions"))
    assert "problem: rich is not installed; pip install 'rich" in text
    assert "problem: textual is 0.1, but dynatui needs" in text


def test_a_gpu_is_described_with_memory_and_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    turing = Gpu("T4", total_bytes=16 * 2**30, free_bytes=3 * 2**29, capability=(7, 5))
    monkeypatch.setattr(doctor_machine, "gpus", lambda: [turing])
    text = said(found("devices", models=Models(device="cpu")))
    assert "gpu 0: T4, 1.5 GiB of 16.0 GiB memory free, bfloat16 emulated, float16 native" in text
    assert "ok: models would run on cpu in " in text


def test_exact_runs_are_named_and_refused_in_float64() -> None:
    asked = Models(device="cpu", dtype="bfloat16", exact=True)
    assert "ok: models would run on cpu in bfloat16, batch-invariant" in said(found("devices", models=asked))
    report = examine(case(models=replace(asked, dtype="float64")), {"devices": CHECKS["devices"]})
    assert not report.ok
    assert "leave out --exact" in page(report)
    assert "models would run" not in page(report)


def test_compiled_runs_are_named_and_refused_where_nothing_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examine(case(models=Models(device="cpu", dtype="float32", compiled=True)), {"devices": CHECKS["devices"]})
    assert not report.ok
    assert "--compile is for CUDA, but the device is cpu" in page(report)
    assert "models would run" not in page(report)
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device("cuda"))
    asked = Models(dtype="float16", compiled=True)
    assert "models would run on cuda in float16, compiled where that is faster" in said(found("devices", models=asked))
    with pytest.raises(ConfigError, match="no effect beside --exact"):
        found("devices", models=replace(asked, exact=True))


def test_what_computes_passes_on_the_cpu_is_told_with_the_remedy_where_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert f"ok: cpu: compiled passes ({libraries.machine()})" in said(found("devices"))
    libraries.missing.cache_clear()
    monkeypatch.setattr(libraries, "library_path", lambda: tmp_path / "passes-z80.so")
    try:
        assert f"passes-z80.so is missing; {libraries.ADVICE}" in said(found("devices"))
    finally:
        libraries.missing.cache_clear()


def test_a_dtype_that_the_cpu_does_not_compute_in_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "cpu_has_fp16", lambda: False)
    asked = Models(device="cpu", dtype="float16")
    assert "note: this CPU does not compute in float16, so float16 is slow; give --dtype float32" in said(
        found("devices", models=asked)
    )


def test_a_draft_in_a_dtype_of_its_own_is_told_and_noted_where_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "cpu_has_fp16", lambda: False)
    told = said(found("devices", models=Models(device="cpu", dtype="float32", draft_dtype="float16")))
    assert "ok: models would run on cpu in float32, draft float16" in told
    assert "note: this CPU does not compute in float16, so float16 is slow; give --draft-dtype float32" in told


def test_how_rounds_would_be_decoded_on_a_cpu_is_told() -> None:
    assert "ok: rounds of the models would be driven by: host, native CPU kernels" in said(
        found("rounds", models=Models(device="cpu"))
    )


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Pretends a GPU on which the embedded pair decodes by the host path; returns the arguments of `load_pair`."""
    loaded: list[dict[str, str]] = []
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device("cuda:0"))
    monkeypatch.setitem(vars(decoder), "load_pair", lambda **given: loaded.append(given))
    tried = DecodingPath("host", "rounds on the device wrote the tokens [1] instead of [2]")
    monkeypatch.setattr("decoder.run.decoding_path.decoding_path", lambda _: tried)
    monkeypatch.setattr("decoder.run.decoding_path.has_room", lambda *_: True)
    return loaded


def test_on_a_gpu_rounds_are_tried_and_a_refusal_is_a_note_with_its_reason(on_a_gpu: list[dict[str, object]]) -> None:
    (finding,) = found("rounds", models=Models(dtype="float16"))
    assert finding.verdict == "note"
    assert finding.text.endswith(
        "host on cuda:0, which is slower: rounds on the device wrote the tokens [1] instead of [2]"
    )
    assert finding.remedy
    assert on_a_gpu == [{"device": "auto", "dtype": "float16", "draft_dtype": "auto", "kernels": True}]


def test_on_a_gpu_that_repeats_graphs_the_models_own_forms_are_told(
    on_a_gpu: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "decoder.run.decoding_path.decoding_path", lambda _: DecodingPath("cuda graphs", "native model")
    )
    text = said(found("rounds"))
    assert "ok: rounds of the embedded pair are driven by cuda graphs on cuda:0: native model" in text
    assert "ok: rounds of the models would be driven by: cuda graphs, native model" in text
    assert len(on_a_gpu) == 1
    text = said(found("rounds", models=Models(exact=True)))
    assert "rounds of the models would be driven by: host, --exact" in text
    assert len(on_a_gpu) == 1


def test_of_models_that_are_not_here_yet_nothing_is_said() -> None:
    assert found("rounds", models=Models("nobody/nothing", "nobody/less", device="cpu")) == []
    assert found("rounds", models=Models("nobody/nothing", None, device="cpu")) == []


def test_wrong_settings_are_a_problem_and_strange_variables_a_note() -> None:
    def wrong() -> str:
        raise ConfigError("config.toml: line 1: no")

    report = examine(case(settings=wrong, strange_variables=["DYNATUI_TAUH"]), {"settings": CHECKS["settings"]})
    assert [(finding.verdict, finding.text) for finding in report.findings] == [
        ("note", "the variable DYNATUI_TAUH sets no option"),
        ("problem", "config.toml: line 1: no"),
    ]


def test_a_log_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    report = examine(case(log=tmp_path), {"log": CHECKS["log"]})
    assert not report.ok


def test_without_a_place_for_recordings_the_rest_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    report = examine(case(), {"recordings": CHECKS["recordings"]})
    assert report.ok
    assert "note     no recording can be started by a key: cannot write" in page(report)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment of a user without settings or state."""
    return {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}


def test_on_this_machine_the_embedded_pair_can_run(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(PROGRAM, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "target books-16m: gpt_neox, weights of " in done.stdout
    assert "target and draft share a tokenizer" in done.stdout
    assert str(tmp_path / "state") in done.stdout
    assert done.stdout.endswith("verdict: everything that is needed works\n")
    assert done.stderr == ""


def test_a_pair_with_different_tokenizers_is_translated(tmp_path: Path) -> None:
    for name, sentences in (("target", tiny.SENTENCES), ("draft", tiny.OTHER_SENTENCES)):
        tiny.save(tmp_path / name, tiny.build(tiny.FAMILIES["neox"](), seed=1), tiny.train_tokenizer(sentences))
    asked = Models(str(tmp_path / "target"), str(tmp_path / "draft"), device="cpu")
    assert "ok: target and draft have different tokenizers: draft translated through text" in said(
        found("models", models=asked)
    )
    assert "host, native CPU kernels; draft translated through text" in said(found("rounds", models=asked))


def test_many_broken_things_are_as_many_problems_in_one_object(environment: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise OSError('libcuda is broken')", encoding="utf-8")
    (tmp_path / "config.toml").write_text("tau_h = 0.02", encoding="utf-8")
    broken_environment = {
        "PYTHONPATH": str(tmp_path),
        "DYNATUI_CONFIG": str(tmp_path / "config.toml"),
        "DYNATUI_LOG_FILE": str(tmp_path),
    }
    done = subprocess.run(
        [*PROGRAM, "--json"],
        env=environment | broken_environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert not report["ok"]
    problems = {each["topic"]: each["text"] for each in report["findings"] if each["verdict"] == "problem"}
    assert set(problems) == {"devices", "models", "rounds", "kernels", "times", "settings", "log"}
    assert "OSError: libcuda is broken" in problems["devices"]
    assert "tau_h from " in problems["settings"]


@pytest.mark.parametrize(
    ("models", "forbidden", "expected"),
    [
        (Models("a/b", "c/d"), False, "note: target a/b is not on this machine yet"),
        (Models("a/b", "c/d"), True, "problem: target a/b is not on this machine; unset HF_HUB_OFFLINE"),
        (Models("./no", "./no"), False, "problem: target: there is no folder ./no"),
        (Models("./no", "./no"), False, "problem: draft: there is no folder ./no"),
        (Models("a/b"), False, "note: target a/b is not on this machine yet; it is downloaded"),
        (Models(draft="a/b"), False, "problem: a draft was named without its target; give --target too"),
    ],
)
def test_what_would_be_loaded_is_looked_for_but_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: Models, expected: str, *, forbidden: bool
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.chdir(tmp_path)
    report = examine(case(models=models, forbidden=forbidden), {"models": CHECKS["models"]})
    assert expected in said([CheckResult(each.verdict, each.text, each.remedy) for each in report.findings])


def test_a_folder_without_weights_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from decoder.models.checkpoints import EMBEDDED_DRAFT  # noqa: PLC0415 - imports torch

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for path in EMBEDDED_DRAFT.glob("*.json"):
        shutil.copy(path, tmp_path)
    text = said(found("models", models=Models(str(tmp_path), str(EMBEDDED_DRAFT))))
    assert f"problem: target {tmp_path} has no safetensors weights" in text
    assert "ok: draft books-1m: gpt_neox, weights of " in text


def test_the_memory_of_windows_is_told_beside_that_of_ring_buffers(tmp_path: Path) -> None:
    config = {
        "model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": 32768, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "intermediate_size": 14336,
        "vocab_size": 32000, "dtype": "bfloat16", "rms_norm_eps": 1e-5,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    text = said(found("models", models=Models(target=str(tmp_path), draft="lookup", dtype="bfloat16")))
    assert "KV cache: 256 KiB per token, 8.0 GiB for a full context of 32768 tokens" in text
    windows = "target attends to windows of 4,096 tokens, and keeps all keys and values"
    assert f"ok: {windows}; ring buffers would take 1.0 GiB; " in text


@pytest.mark.parametrize(
    ("saved_by", "layout", "kind", "by_host"),
    [
        (eagle3_checkpoints.pair, "nested", "EAGLE-3 head", "--exact runs passes that are not captured as CUDA graphs"),
        (eagle3_checkpoints.pair, "P-EAGLE", "P-EAGLE head", "of drafting heads, only those of EAGLE-3 are captured"),
        (dflash_checkpoints.pair, "z-lab", "DFlash head", "of drafting heads, only those of EAGLE-3 are captured"),
    ],
)
def test_a_head_is_told_as_what_it_is(
    tmp_path: Path, on_a_gpu: list[dict[str, str]], saved_by: Any, layout: str, kind: str, by_host: str
) -> None:
    saved = saved_by("llama", layout, tmp_path)
    given = Models(str(saved.target), str(saved.draft))
    text = said(found("models", models=given))
    assert f"ok: draft head: {kind}, weights of " in text
    assert "problem" not in text
    assert "tokenizer" not in text
    on_host = replace(given, exact=True)
    assert f"driven by: host, {by_host}" in said(found("rounds", models=on_host))
    assert not on_a_gpu


def test_a_device_that_is_not_there_is_a_problem() -> None:
    report = examine(case(models=Models(device="cuda:99")), {"devices": CHECKS["devices"]})
    assert not report.ok
    assert "device cuda:99 was requested" in page(report)
