"""Tests of the program on GGUF files: figures that name the quantisation, the doctor, and refusals in one line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dynatui import main as cli
from dynatui.cli.doctor import checks, examine, page
from dynatui.session import Models
from tests.gguf_pair import GgufPair, needs_llama_cpp

pytestmark = needs_llama_cpp
PROGRAM = [sys.executable, "-m", "dynatui"]
WITHOUT_THE_EXTRA = "import sys; sys.modules['xllamacpp'] = None; from dynatui.__main__ import main; main()"


def run_with(pair: GgufPair, *options: str) -> list[str]:
    models = ["--target", str(pair.target("Q8_0")), "--draft", str(pair.draft())]
    return ["--headless", *models, "--prompt", "Call me", "--max-new-tokens", "12", *options]


def test_a_run_names_the_form_and_its_recording_needs_no_extra(
    gguf_pair: GgufPair, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "run.jsonl"
    assert cli.main(run_with(gguf_pair, "--json", "--methods", "dynatree,ar", "--record", str(path))) == 0
    live = capfdbinary.readouterr().out
    result = json.loads(live)
    assert result["target"] == "books-16m-Q8_0.gguf"
    assert (result["dtype"], result["draft_dtype"]) == ("GGUF Q8_0", "GGUF F32")
    assert result["path_reason"] == "target: llama.cpp, GGUF Q8_0; draft: llama.cpp, GGUF F32"
    replay = [sys.executable, "-c", WITHOUT_THE_EXTRA, "replay", str(path), "--json"]
    assert subprocess.run(replay, capture_output=True, check=True).stdout == live


def test_llama_cpp_is_measured_beside_a_target_in_torch(
    gguf_pair: GgufPair, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "speed.jsonl"
    asked = ["--methods", "ar", "--no-baselines", "--llama-cpp", str(gguf_pair.target()), "--json", str(kept)]
    small = ["--prompt", "Call me", "--max-new-tokens", "12", "--repeats", "1", "--device", "cpu", "--dtype", "float32"]
    assert cli.main(["bench", "speed", *asked, *small]) == 0
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines() if line.endswith("1 of 1")] == [
        "ar",
        "llama.cpp",
    ]
    result = json.loads(kept.read_text())
    assert result["setup"]["target"] == "books-16m"
    assert result["setup"]["contenders"]["llama.cpp"]["file"] == "books-16m-F32.gguf"


def test_a_broken_file_is_one_line(gguf_pair: GgufPair, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_pair.draft().read_bytes()[:-5000])
    assert cli.main(["--headless", "--target", str(path), "--draft", "lookup", "--prompt", "x"]) == 2
    said = capfd.readouterr().err
    assert len(said.splitlines()) == 1 + said.count("loading target")
    assert "corrupted or incomplete; failed to load model; choose another file" in said


def test_a_killed_run_leaves_nothing(gguf_pair: GgufPair, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("here", "temporary", "home")]
    for folder in folders:
        folder.mkdir()
    here, temporary, home = map(str, folders)
    environment = {**os.environ, "TMPDIR": temporary, "HOME": home, "PYTHONPATH": os.pathsep.join(sys.path)}
    asked = [*PROGRAM, *run_with(gguf_pair, "--max-new-tokens", "1500")]
    with subprocess.Popen(
        asked, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr
        assert any("rounds: host" in line for line in run.stderr)
        run.send_signal(signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    assert [path for folder in folders for path in folder.rglob("*") if path.is_file()] == []


def examined(models: Models) -> str:
    every = checks(models, None, None)
    return page(examine({name: every[name] for name in ("devices", "models", "rounds")}))


def test_the_doctor_names_route_memory_and_quantisation(gguf_pair: GgufPair) -> None:
    text = examined(Models(str(gguf_pair.target("Q8_0")), str(gguf_pair.draft())))
    assert "ok       llama.cpp would run the models\n" in text
    assert "target books-16m-Q8_0.gguf: gptneox, Q8_0, weights of 16 MiB, keys and values: 12 KiB per token" in text
    assert "target and draft share a tokenizer" in text
    assert "driven by: host, target: llama.cpp, GGUF Q8_0; draft: llama.cpp, GGUF F32" in text


@pytest.mark.parametrize(
    ("models", "why"),
    [(Models("none.gguf", "lookup"), "there is no file none.gguf"), (Models(gpu_layers=3), "no model is a GGUF file")],
)
def test_the_doctor_names_what_is_wrong(models: Models, why: str) -> None:
    assert why in examined(models)
