"""Tests of the doctor's expected times: the embedded pair, folders without weights, GPUs, and what is unknown."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder.run import expected
from dynatui import main as cli
from dynatui.cli import doctor_models
from dynatui.cli.doctor_machine import CheckResult
from dynatui.gpu import Gpu
from dynatui.session import Models
from tests import eagle3_checkpoints
from tests.decoder.run.sparse_models import gguf, mixture
from tests.dynatui.cli import doctor_case

LLAMA_8B = {
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 1000,
    "rms_norm_eps": 1e-5,
}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that reads 10 GB/s and computes 1 TFLOP/s."""
    monkeypatch.setattr(expected, "read_bytes_per_s", lambda _size, _clock: 1e10)
    monkeypatch.setattr(expected, "flops_per_s", lambda _dtype, _clock: 1e12)


def configured(folder: Path, config: dict[str, Any]) -> str:
    """Writes a configuration without weights, and returns the folder's name."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def found(target: str | None = None, draft: str | None = None, **options: Any) -> list[CheckResult]:
    models = Models(target, draft, **{"device": "cpu", "dtype": "float32", **options})
    return doctor_case.found("times", models=models)


def said(findings: list[CheckResult]) -> list[str]:
    return [f"{finding.verdict}: {finding.text}" for finding in findings]


def test_a_configuration_alone_tells_how_fast_a_pair_can_be(tmp_path: Path) -> None:
    target = configured(tmp_path / "big", LLAMA_8B)
    draft = configured(tmp_path / "small", LLAMA_8B | {"num_hidden_layers": 1})
    lines = said(found(target, draft, dtype="bfloat16"))
    # Without the embedding, 7.505e9 weights of 2 bytes: 1.501 s at 10 GB/s. Each token of the text has 32 x 2 x 1024
    # numbers of 2 bytes. The draft has one layer and the head: 0.743e9 weights, 0.149 s. 64 rows compute for 0.961 s.
    assert lines == [
        "ok: the CPU reads 10.0 GB/s of weights and computes 1000 GFLOP/s in bfloat16, measured with 1 thread",
        "ok: plain decoding: at most 0.67 tokens/s, 0.66 with a full context of 1000 tokens",
        "ok: a round of 1 level and 2 rows: at least 1650 ms; it pays from 1.10 tokens per round on",
        "ok: a round of 4 levels and 16 rows: at least 2096 ms; it pays from 1.40 tokens per round on",
        "ok: a round of 8 levels and 64 rows: at least 2691 ms; it pays from 1.79 tokens per round on",
    ]


def test_lookups_take_no_pass(tmp_path: Path) -> None:
    target = configured(tmp_path / "big", LLAMA_8B)
    (line,) = [line for line in said(found(target, "lookup", dtype="bfloat16")) if "4 levels" in line]
    assert "at least 1501 ms; it pays from 1.00 tokens" in line


def test_on_a_gpu_the_bandwidth_is_that_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = configured(tmp_path / "big", LLAMA_8B)
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(doctor_models, "memory_bytes_per_s", lambda device: 4.8e12 if device == "cuda" else None)
    first, plain, *_ = said(found(target, "lookup", device="cuda", dtype="bfloat16"))
    assert first == "ok: cuda reads at most 4800 GB/s, by the memory's clock and bus width; arithmetic is not counted"
    assert "at most 320 tokens/s" in plain
    monkeypatch.setattr(doctor_models, "memory_bytes_per_s", lambda _: None)
    (unknown,) = said(found(target, "lookup", device="cuda"))
    assert unknown == (
        "note: the least times of the models are unknown: the driver does not report clock and bus width of the memory "
        "of cuda"
    )


def test_a_mixture_of_experts_names_no_point_from_which_rounds_pay(tmp_path: Path) -> None:
    mixture().save_pretrained(tmp_path / "mixture")
    lines = said(found(str(tmp_path / "mixture"), "lookup"))
    assert "; of the experts, only those of one token are counted" in lines[1]
    assert not any("pays" in line for line in lines)
    assert len(lines) == 5


def test_an_impossible_mixture_is_unknown(tmp_path: Path) -> None:
    mixture(num_experts_per_tok=5).save_pretrained(tmp_path / "mixture")
    (line,) = said(found(str(tmp_path / "mixture"), "lookup"))
    assert line.startswith("note: the least times of the models are unknown: it is unknown how many experts")


def test_a_head_is_left_out_and_that_is_told(tmp_path: Path) -> None:
    pair = eagle3_checkpoints.pair("llama", "flat", tmp_path)
    lines = said(found(str(pair.target), str(pair.draft)))
    assert lines[-1] == "note: passes of the draft are not counted: a drafting head reads states of the target"


def test_a_gguf_file_beside_a_gpu_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_models, "gpus", lambda: [Gpu("H200", None, None, None)])
    monkeypatch.setattr(
        "decoder.models.checkpoints.load_config", lambda _: gguf({"token_embd.weight": 1000}, context_length=128)
    )
    (tmp_path / "a.gguf").touch()
    named = str(tmp_path / "a.gguf")
    (line,) = said(found(named, "lookup"))
    assert "llama.cpp would spread a GGUF file over CPU and GPU" in line
    first, plain, *_ = said(found(named, "lookup", gpu_layers=0))
    assert first == "ok: the CPU reads 10.0 GB/s of weights, measured with 1 thread"
    assert "at most 10000000 tokens/s" in plain or "at most 1e+07 tokens/s" in plain


def test_of_a_pair_that_other_probes_refuse_nothing_is_said(tmp_path: Path) -> None:
    assert found(None, "some/draft") == []
    assert found(str(tmp_path), "lookup") == []


def test_the_command_prints_them_for_the_embedded_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--device", "cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    told = [finding["text"] for finding in report["findings"] if finding["topic"] == "times"]
    assert len(told) == 5
    assert told[0].startswith("the CPU reads 10.0 GB/s of weights and computes 1000 GFLOP/s in ")
    assert told[-1].startswith("a round of 8 levels and 64 rows: at least ")
