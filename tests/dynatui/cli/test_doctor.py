"""Tests of `dynatui doctor`: it names problems and remedies, and no problem stops it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
import torch

import decoder
from decoder.errors import ConfigError
from decoder.forward.compiled import library as libraries
from decoder.run.decoding_path import DecodingPath
from dynatui import main as cli
from dynatui.cli import doctor, doctor_models
from dynatui.cli.doctor import examine, lacking, page
from dynatui.cli.finding import Finding, note, ok
from dynatui.gpu import Gpu
from dynatui.session import Models
from tests import heads, tiny
from tests.dynatui.cli.doctor_case import found, refused, said, told


def fine() -> Iterable[Finding]:
    return ok("fine"), note("but slow", "wait")


def refusing() -> Iterable[Finding]:
    yield ok("begun")
    raise ConfigError("no device; give one")


def crashing() -> Iterable[Finding]:
    raise RuntimeError("\x1b[2J\nboom")


def test_a_probe_that_fails_hides_neither_what_it_found_nor_the_others() -> None:
    end = "c\n  ok       fine\n  note     but slow; wait\nverdict: "
    assert page(examine({"c": fine})) == f"{end}everything that is needed works\n"
    text = page(examine({"a": refusing, "b": crashing, "c": fine}))
    assert text.startswith("a\n  ok       begun\n  problem  no device; give one\nb\n  problem  ")
    assert "RuntimeError: ␛[2J" in text
    assert text.endswith(f"\n{end}2 problems, see above\n")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ("TERM=xterm-256color COLORTERM=truecolor NO_COLOR=", "ok: 16 million colours"),
        ("TERM=xterm-256color COLORTERM= NO_COLOR=", "ok: 256 colours"),
        ("TERM=linux COLORTERM= NO_COLOR=", "ok: 16 colours"),
        ("TERM=xterm COLORTERM= NO_COLOR=1", "ok: no colours, because NO_COLOR is set"),
        ("TERM=dumb COLORTERM= NO_COLOR=", "note: TERM is dumb, so there is no screen"),
        ("TERM= COLORTERM= NO_COLOR=", "note: TERM is not set, so there is no screen"),
        ("SSH_CONNECTION=abcd", "over SSH: 5 frames a second"),
        ("TMUX=/tmp/tmux", "inside tmux"),
    ],
)
def test_colours_and_line_are_the_terminal_s(monkeypatch: pytest.MonkeyPatch, variables: str, expected: str) -> None:
    for name, _, value in (each.partition("=") for each in variables.split()):
        monkeypatch.setenv(name, value)
    assert expected in told("terminal")


def test_no_terminal_or_a_small_one_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((120, 40)))
    assert "ok: 120x40 characters" in told("terminal")
    monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((79, 24)))
    assert "note: 79x24 characters; panels need at least 80x24 characters" in told("terminal")
    monkeypatch.setattr(doctor, "is_terminal", lambda name: name != "stdout")
    assert "note: dynatui runs without a screen here: no terminal is connected to stdout" in told("terminal")


def test_packages_are_those_that_dynatui_needs_and_a_missing_or_old_one_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = metadata.version
    (finding,) = found("versions")
    assert finding.verdict == "ok"
    assert all(f"{name} {real(name)}" in finding.text for name in ("textual", "torch"))
    assert "pytest" not in finding.text

    def version(name: str) -> str:
        if name == "rich":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "textual" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    text = told("versions")
    assert "problem: rich is not installed; pip install 'rich" in text
    assert "problem: textual is 0.1, but dynatui needs" in text


def test_a_gpu_is_described_with_memory_and_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    turing = Gpu("T4", total_bytes=16 * 2**30, free_bytes=3 * 2**29, capability=(7, 5))
    monkeypatch.setattr(doctor, "gpus", lambda: [turing])
    text = told("devices", Models(device="cpu"))
    assert "gpu 0: T4, 1.5 GiB of 16.0 GiB memory free, bfloat16 emulated, float16 native" in text
    assert "ok: models would run on cpu in " in text


def test_exact_and_compiled_runs_are_named_and_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Models(device="cpu", dtype="bfloat16", exact=True)
    assert "ok: models would run on cpu in bfloat16, batch-invariant" in told("devices", exact)
    for models, why in (
        (replace(exact, dtype="float64"), "leave out --exact"),
        (Models(device="cpu", dtype="float32", compiled=True), "--compile is for CUDA, but the device is cpu"),
        (Models(device="cuda:99"), "device cuda:99 was requested"),
    ):
        text = refused("devices", models)
        assert why in text
        assert "models would run" not in text
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device("cuda"))
    compiled = Models(dtype="float16", compiled=True)
    assert "models would run on cuda in float16, compiled where that is faster" in told("devices", compiled)
    assert "no effect beside --exact" in refused("devices", replace(compiled, exact=True))


def test_what_computes_passes_on_the_cpu_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert f"ok: cpu: compiled passes ({libraries.machine()})" in told("devices")
    libraries.missing.cache_clear()
    monkeypatch.setattr(libraries, "library_path", lambda: tmp_path / "passes-z80.so")
    try:
        assert f"passes-z80.so is missing; {libraries.ADVICE}" in told("devices")
    finally:
        libraries.missing.cache_clear()


@pytest.mark.parametrize(
    ("dtypes", "option"), [(("float16", "auto"), "--dtype"), (("float32", "float16"), "--draft-dtype")]
)
def test_a_dtype_that_the_cpu_lacks_is_a_note(
    monkeypatch: pytest.MonkeyPatch, dtypes: tuple[str, str], option: str
) -> None:
    monkeypatch.setattr(doctor, "cpu_has_fp16", lambda: False)
    text = told("devices", Models(device="cpu", dtype=dtypes[0], draft_dtype=dtypes[1]))
    assert f"note: this CPU does not compute in float16, so float16 is slow; give {option} float32" in text
    assert f"ok: models would run on cpu in {', draft '.join(dtypes).removesuffix(', draft auto')}" in text


def test_how_rounds_would_be_decoded_on_a_cpu_is_told_unless_the_models_are_not_here_yet() -> None:
    native = "ok: rounds of the models would be driven by: host, native CPU kernels"
    assert native in told("rounds", Models(device="cpu"))
    drafts = ("nobody/less", None)
    assert not any(found("rounds", Models("nobody/nothing", draft, device="cpu")) for draft in drafts)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Pretends a GPU on which the embedded pair decodes by the host path; returns the arguments of `load_pair`."""
    loaded: list[dict[str, str]] = []
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device("cuda:0"))
    monkeypatch.setitem(vars(decoder), "load_pair", lambda **given: loaded.append(given))
    tried = DecodingPath("host", "rounds on the device wrote the tokens [1] instead of [2]")
    monkeypatch.setattr("decoder.run.decoding_path.decoding_path", lambda _: tried)
    return loaded


def test_on_a_gpu_rounds_are_tried_and_a_refusal_is_a_note_with_its_reason(on_a_gpu: list[dict[str, object]]) -> None:
    (finding,) = found("rounds", Models(dtype="float16"))
    assert finding.verdict == "note"
    assert finding.text.endswith(
        "host on cuda:0, which is slower: rounds on the device wrote the tokens [1] instead of [2]"
    )
    assert finding.remedy
    assert on_a_gpu == [{"device": "auto", "dtype": "float16", "draft_dtype": "auto", "kernels": True}]


def test_on_a_gpu_the_forms_of_models_are_told(on_a_gpu: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "decoder.run.decoding_path.decoding_path", lambda _: DecodingPath("cuda graphs", "native model")
    )
    text = told("rounds")
    assert "ok: rounds of the embedded pair are driven by cuda graphs on cuda:0: native model" in text
    assert "ok: rounds of the models would be driven by: cuda graphs, native model" in text
    assert len(on_a_gpu) == 1
    text = told("rounds", Models(exact=True))
    assert "rounds of the models would be driven by: host, --exact" in text
    assert len(on_a_gpu) == 1


def test_wrong_settings_are_a_problem_and_strange_variables_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)
    monkeypatch.setenv("DYNATUI_TAUH", "1")
    monkeypatch.setenv("DYNATUI_TAU_H", "7")
    live = click.Context(cli.command())
    report = examine({"settings": lambda: doctor.settings_in_force(live)})
    note, problem = report["settings"]
    assert note.text == "the variable DYNATUI_TAUH sets no option"
    assert (problem.verdict, "tau_h from DYNATUI_TAU_H" in problem.text) == ("problem", True)


def test_an_unwritable_log_is_a_problem_and_recordings_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused("log", log=tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert "note: no recording can be started by a key: cannot write" in told("recordings")


def test_on_this_machine_the_embedded_pair_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert cli.main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert "target books-16m: gpt_neox, weights of " in out
    assert "target and draft share a tokenizer" in out
    assert "; it is faster from " in out.partition("estimate of a round of 8 levels and 64 rows: ")[2]
    assert str(tmp_path / "state") in out
    assert (out.splitlines()[-1], err) == ("verdict: everything that is needed works", "")


def test_a_pair_with_different_tokenizers_is_translated(tmp_path: Path) -> None:
    for name, sentences in (("target", tiny.SENTENCES), ("draft", tiny.OTHER_SENTENCES)):
        tiny.save(tmp_path / name, tiny.build(tiny.FAMILIES["neox"](), seed=1), tiny.train_tokenizer(sentences))
    asked = Models(str(tmp_path / "target"), str(tmp_path / "draft"), device="cpu")
    assert "ok: target and draft have different tokenizers: draft translated through text" in told(
        "models", models=asked
    )
    assert "host, native CPU kernels; draft translated through text" in told("rounds", asked)


def test_many_broken_things_are_as_many_problems_in_one_object(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcuda is broken')", encoding="utf-8")
    (tmp_path / "config.toml").write_text("tau_h = 0.02", encoding="utf-8")
    broken = {"PYTHONPATH": tmp_path, "DYNATUI_CONFIG": tmp_path / "config.toml", "DYNATUI_LOG_FILE": tmp_path}
    environment = os.environ | {name: str(place) for name, place in broken.items()}
    asked = [sys.executable, "-m", "dynatui", "doctor", "--json"]
    done = subprocess.run(asked, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
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
    monkeypatch.chdir(tmp_path)
    assert expected in said(examine({"models": lambda: doctor_models.models(models, forbidden=forbidden)})["models"])


def test_a_folder_without_weights_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from decoder.models.checkpoints import EMBEDDED_DRAFT  # noqa: PLC0415 - imports torch

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for path in EMBEDDED_DRAFT.glob("*.json"):
        shutil.copy(path, tmp_path)
    text = told("models", Models(str(tmp_path), str(EMBEDDED_DRAFT)))
    assert f"problem: target {tmp_path} has no safetensors weights" in text
    assert "ok: draft books-1m: gpt_neox, weights of " in text


def test_the_memory_of_windows_is_told_beside_that_of_ring_buffers(tmp_path: Path) -> None:
    config = {
        "model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": 32768, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "intermediate_size": 14336,
        "vocab_size": 32000, "dtype": "bfloat16", "rms_norm_eps": 1e-5,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    text = told("models", Models(target=str(tmp_path), draft="lookup", dtype="bfloat16"))
    assert "KV cache: 256 KiB per token, 8.0 GiB for a full context of 32768 tokens" in text
    windows = "target attends to windows of 4,096 tokens, and keeps all keys and values"
    assert f"ok: {windows}; ring buffers would take 1.0 GiB; " in text


@pytest.mark.parametrize(
    ("saved_by", "layout", "kind", "by_host"),
    [
        (heads.pair, "nested", "EAGLE-3 head", "--exact runs passes that are not captured as CUDA graphs"),
        (heads.pair, "P-EAGLE", "P-EAGLE head", "of drafting heads, only those of EAGLE-3 are captured"),
        (heads.pair, "z-lab", "DFlash head", "of drafting heads, only those of EAGLE-3 are captured"),
    ],
)
def test_a_head_is_told_as_what_it_is(
    tmp_path: Path, on_a_gpu: list[dict[str, str]], saved_by: Any, layout: str, kind: str, by_host: str
) -> None:
    saved = saved_by("llama", layout, tmp_path)
    given = Models(str(saved.target), str(saved.draft))
    text = told("models", given)
    assert f"ok: draft head: {kind}, weights of " in text
    assert "problem" not in text
    assert "tokenizer" not in text
    on_host = replace(given, exact=True)
    assert f"driven by: host, {by_host}" in told("rounds", on_host)
    assert not on_a_gpu


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, str]:
    """Environment of a machine that has all that Triton needs."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    for name in ("gcc", "mycc"):
        (programs / name).touch(0o755)
    (tmp_path / "Python.h").touch()
    return {"PATH": str(programs), "HOME": str(home)}


@pytest.mark.parametrize(
    ("changes", "headers", "told"),
    [
        ({}, "", ""),
        ({"CC": "mycc"}, "", ""),
        ({"PATH": "none"}, "", "Triton needs a C compiler, but there is no gcc or clang; install gcc, "),
        ({"CC": "othercc"}, "", "Triton needs a C compiler, but CC names othercc, which is not there; install gcc, "),
        ({}, "include", "include has no Python.h; install them, for example with apt install python3."),
        *(
            ({name: "Python.h"}, "", "cannot be written; set TRITON_CACHE_DIR to a folder that can be written")
            for name in ("TRITON_CACHE_DIR", "TRITON_HOME", "HOME")
        ),
        ({"TRITON_CACHE_DIR": "not/made/yet"}, "", ""),
    ],
)
def test_what_triton_lacks_is_told_with_a_remedy(
    whole: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    headers: str,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    needs = list(lacking(whole | changes, tmp_path / headers))
    assert [(need.verdict, told in f"{need.text}; {need.remedy}") for need in needs] == [("note", True)] * bool(told)
    assert all("or give --no-kernels" in need.remedy and "\n" not in need.text + need.remedy for need in needs)
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    ("models", "device", "examined"),
    [
        (Models(), "cuda:0", True),
        (Models(kernels=False), "cuda:0", False),
        (Models(exact=True), "cuda:0", False),
        (Models(), "cpu", False),
    ],
)
def test_only_where_kernels_would_be_built_are_their_needs_or_the_lack_of_triton_told(
    models: Models, device: str, monkeypatch: pytest.MonkeyPatch, *, examined: bool
) -> None:
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device(device))
    monkeypatch.setattr(doctor, "find_spec", lambda _: True)
    assert bool(found("kernels", models)) == examined
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    assert [(finding.verdict, finding.text) for finding in found("kernels", models)] == [
        ("note", "Triton is not installed")
    ] * examined
