"""Tests of the commands `dynatui bench speed`, `sampling` and `sweep`: printed output and written files, and what they
measure under torchrun.
"""

import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decoder.methods import METHODS
from dynatui.lab.bench import Done, Progress
from dynatui.lab.bench.data_sets import FILE
from dynatui.lab.commands import bench, bench_sweep
from dynatui.lab.commands.bench_sampling import TASKS
from dynatui.lab.commands.shared import Measured
from dynatui.main import command, main
from tests import tiny
from tests.decoder.tensor_parallel.started_ranks import FIRST_OF_TWO, start_as
from tests.dynatui.cli.fake_screen import Refused
from tests.lab.bench.data_sets.makers import questions, written


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


BRIEF = shlex.split("--temperatures 0.8 --top-p '' --k 2 --length 1 --max-new-tokens 4 --device cpu")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    written(tmp_path / "data" / FILE, questions(*TASKS.split(",")))
    return tmp_path / "data"


def test_tables_are_printed_and_the_report_and_the_log_are_kept(
    models: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--output", str(tmp_path / "log"), "--json", str(tmp_path / "report")]
    chosen = ["--verifiers", "block,traversal", "--tasks", "translation,math_reasoning", "--data", str(data)]
    arguments = ["bench", "sampling", *BRIEF, *models, *chosen, *files]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "translation for Opus, math_reasoning for MATH500" in " ".join(printed.split())
    assert "Block efficiency" in printed
    report = json.loads((tmp_path / "report").read_text(encoding="utf-8"))
    assert {row["verifier"] for row in report["block_efficiency"]} == {"block", "traversal", "coupled"}
    measured = (tmp_path / "log").read_bytes()
    assert len(measured.splitlines()) == 1 + 2 + 2
    assert main(arguments) == 0
    assert (tmp_path / "log").read_bytes() == measured


def test_prompts_of_one_s_own_need_no_data(models: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--prompt", "The tree grows", "--verifiers", "nss", "--decoded", "0"]
    assert main(["bench", "sampling", *BRIEF, *models, *own]) == 0
    printed = capsys.readouterr().out
    assert "Spec-Bench" not in printed
    assert "Tokens a second" not in printed


SMALL = ("--axis", "tau_h=.7,.9", "--axis", "tau_l=.3", "--axis", "T=6,8", "--prompt", "The tree grows")


def test_a_grid_is_measured_kept_and_shown_again(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "folder"
    assert main(["bench", "sweep", "thresholds", *SMALL, *models, "--output", str(folder)]) == 0
    measured = capsys.readouterr()
    assert "T=6, tau_l across" in measured.out
    assert "4 of 4 settings of thresholds" in measured.out
    assert "4 of 4: tau_h=" in measured.err
    assert "Warning" not in measured.err
    assert "[I " not in measured.err
    kept = ["--output", str(folder), "--json", str(tmp_path / "report")]
    assert main(["bench", "sweep", "--show", *kept]) == 0
    assert capsys.readouterr().out == measured.out
    report = json.loads((tmp_path / "report").read_text(encoding="utf-8"))
    assert [trial["state"] for trial in report["trials"]] == ["done"] * 4
    assert report["machines"]["sweep-1-of-1"]["versions"]["torch"]
    assert main(["bench", "sweep", "thresholds", *SMALL, *models, *kept]) == 0
    again = capsys.readouterr()
    assert again.out == measured.out
    assert "4 of 4 settings are measured" in again.err


def test_an_interrupted_sweep_shows_what_it_has(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(steps: Iterator[Progress]) -> Iterator[Progress]:
        for step in steps:
            if step.line.startswith("1 of "):
                signal.raise_signal(signal.SIGTERM)
            yield step

    monkeypatch.setattr(bench_sweep, "shown", interrupted)
    assert main(["bench", "sweep", "thresholds", *SMALL, *models, "--output", str(tmp_path)]) == 130
    out = capsys.readouterr().out
    assert "1 of 4 settings of thresholds" in out
    assert "not yet measured" in out


SPEED = ("bench", "speed")
OTHERS = (
    ("bench", "paper"),
    ("bench", "sweep", "fixed"),
    ("bench", "sampling"),
    ("tune",),
    ("selector", "collect", "--data", "x"),
    ("doctor",),
    ("replay", "x"),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of each measurement, which is replaced by a function that measures nothing."""
    found: list[dict[str, Any]] = []

    def measure(**given: Any) -> Measured:
        found.append(given)
        return Measured("a table\n", Done({}, interrupted=False))

    for name in ("_on_texts", "_on_rounds"):
        monkeypatch.setattr(bench, name, measure)
    return found


@pytest.fixture
def _started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(FIRST_OF_TWO, monkeypatch)


@pytest.mark.usefixtures("_started_by_torchrun")
def test_the_leader_measures_what_can_be_spread(asked: list[dict[str, Any]]) -> None:
    assert main([*SPEED, "--prompt", "x"]) == 0
    (found,) = asked
    assert set(found["methods"]) == {name for name, method in METHODS.items() if not method.whole_target}


def test_one_process_measures_all(asked: list[dict[str, Any]]) -> None:
    assert main([*SPEED, "--prompt", "x"]) == 0
    assert "streaming" in asked[0]["methods"]


@pytest.mark.usefixtures("_started_by_torchrun")
def test_what_needs_the_whole_target_is_refused_before_anything_is_measured(
    asked: list[dict[str, Any]], refused: Refused
) -> None:
    shapes = refused(*SPEED, "--shapes", "pythia-2.8b:pythia-70m")
    assert "each would do the whole work of dynatui bench speed --shapes; start" in shapes
    assert "--baselines measures transformers' own generation, which needs" in refused(*SPEED, "--baselines")
    idle = refused(*SPEED, "--streaming", "4x1020x5")
    assert "--streaming has no effect where streaming is not measured; leave --streaming out" in idle
    assert asked == []


@pytest.mark.usefixtures("_started_by_torchrun")
@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_commands_that_know_nothing_of_other_processes_say_so(command: tuple[str, ...], refused: Refused) -> None:
    named = " ".join(command[:2] if command[0] == "bench" else command[:1])
    said = f"WORLD_SIZE says that 2 processes were started, and each would do the whole work of dynatui {named}; start"
    assert said in refused(*command)
