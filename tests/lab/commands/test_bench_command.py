"""Tests of the command `dynatui bench speed`: printed output and written files."""

import json
import shlex
from pathlib import Path

import pytest

from dynatui.lab.commands import bench
from dynatui.main import command, main
from tests import tiny


def test_help_names_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "speed", "--help"]) == 0
    text = capsys.readouterr().out
    speed = command().commands["bench"].commands["speed"]  # type: ignore[attr-defined]
    assert len(speed.params) > 25
    assert all(option.opts[0] in text for option in speed.params)
    assert bench.all_methods().startswith("dynatree,auto,ar,linear,fixed")
    assert "hf" not in bench.all_methods().split(",")


def test_a_measurement_prints_tables_and_adds_a_line_to_the_file(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "speed.jsonl"
    prompts = ["--prompt", "  The tree grows where the draft is sure", "--prompt-chars", "14"]
    size = shlex.split(
        "--max-new-tokens 6 --repeats 1 --linear 2,3x.4 --fixed 2x2 --no-baselines --preset paper --d0 2"
    )
    arguments = ["bench", "speed", *models, *prompts, *size, "--draft-dtype", "bfloat16", "--json", str(kept)]
    for _ in range(2):
        assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "tokens/s" in captured.out
    assert "dynatree over linear (" in captured.out
    assert "on cpu in float32, draft bfloat16" in captured.out
    assert "11 of 11 turns" in captured.err
    first, second = map(json.loads, kept.read_text().splitlines())
    names = [row["name"] for row in second["rows"]]
    trees = ["dynatree", "auto", "linear 2", "linear 3x0.4", "fixed 2x2", "bestfirst 8x5"]
    assert names == ["ar", *trees, "eagle2 5x4x8", "delayed", "streaming 4x1020x5", "alg1"]
    assert first["setup"]["contenders"]["dynatree"]["d0"] == 2
    assert first["texts"] == second["texts"]
    tokenizer = tiny.train_tokenizer()
    assert first["setup"]["prompts"] == [tokenizer("The tree grows").input_ids]


def test_random_weights_are_measured_by_their_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2}
    path.write_text(json.dumps({"model_type": "gpt_neox", "vocab_size": 288, "max_position_embeddings": 64} | shape))
    sizes = ["--trees", "1x2,2x4", "--context", "8", "--max-new-tokens", "3", "--repeats", "1", "--device", "cpu"]
    assert main(["bench", "speed", "--shapes", f"{path}:{path}", *sizes, "--dtype", "float32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("ar ", "1x2", "2x4"))] == ["ar", "1x2", "2x4"] * 3


def test_rounds_of_loaded_models_are_measured_after_texts_of_several_lengths(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "rounds.jsonl"
    sizes = ["--context", "8,40,24", "--trees", "1x2,2x4", "--repeats", "1", "--json", str(kept)]
    assert main(["bench", "speed", *models, *sizes]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("After")] == [
        f"After {length} random tokens, with a draft that guesses at random:" for length in (8, 40, 24)
    ]
    assert "Growth relative to 8 tokens:" in lines
    report = json.loads(kept.read_text())
    assert [(row["name"], row["context"]) for row in report["growth"]] == [
        (name, length) for name in ("ar", "1x2", "2x4") for length in (40, 24)
    ]
    assert report["setup"]["max_new_tokens"] == bench.ROUNDS
    assert [len(prompt) for prompt in report["setup"]["prompts"]] == [8, 40, 24]


def test_a_hostile_draft_is_measured_on_texts(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "hostile.jsonl"
    small = ["--prompt", "The tree grows", "--max-new-tokens", "20", "--repeats", "1", "--no-baselines"]
    for extra in ([], ["--hostile"]):
        assert main(["bench", "speed", *models, *small, "--methods", "linear", "--json", str(kept), *extra]) == 0
    kind, hostile = map(json.loads, kept.read_text().splitlines())
    assert kind["texts"] == hostile["texts"]
    assert kind["rows"][1]["tokens_per_round"] > 1.3
    assert hostile["rows"][1]["tokens_per_round"] < 1.2
    assert "(random head)" in capsys.readouterr().out


def test_settings_for_the_live_race_do_not_choose_what_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DYNATUI_METHODS", "hf,ar")
    monkeypatch.setenv("DYNATUI_FIXED", "4,4")
    assert main(["bench", "speed", "--linear", "x"]) == 2
    assert "--linear is 'x'" in capsys.readouterr().err


def test_the_prompt_that_does_not_fit_is_named(models: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "speed", *models, "--prompt", "a", "--prompt", "b" * 400, "--max-new-tokens", "5"]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("dynatui: prompt 2 of 2: the prompt has ")
