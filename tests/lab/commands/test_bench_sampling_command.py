"""Tests of the command `dynatui bench sampling`: printed output and written files."""

import json
import shlex
from pathlib import Path

import pytest

from dynatui.lab.commands.bench_sampling import TASKS
from dynatui.main import main
from tests.dynatui.cli.fake_screen import Refused

QUESTIONS = "".join(
    json.dumps({"question_id": number, "category": task, "turns": [f"Say something of {task}."]}) + "\n"
    for number, task in enumerate(TASKS.split(","))
)
FEW = ("--tasks", "translation,math_reasoning")
BRIEF = shlex.split("--temperatures 0.8 --top-p '' --k 2 --length 1 --max-new-tokens 4 --device cpu")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "spec_bench").mkdir(parents=True)
    (tmp_path / "data" / "spec_bench" / "question.jsonl").write_text(QUESTIONS, encoding="utf-8")
    return tmp_path / "data"


def test_a_task_that_is_not_there_is_one_line(data: Path, refused: Refused) -> None:
    line = refused("bench", "sampling", "--data", str(data), "--tasks", "law")
    assert line.startswith("--tasks names 'law', which is unknown; choose from writing")


def test_a_file_of_something_else_is_not_touched(tmp_path: Path, refused: Refused) -> None:
    letter = tmp_path / "letter"
    letter.write_text("Dear reader", encoding="utf-8")
    line = refused("bench", "sampling", "--output", str(letter))
    assert "holds no measurement that this version can read; set --output to another file" in line
    assert letter.read_text(encoding="utf-8") == "Dear reader"


def test_tables_are_printed_and_the_report_and_the_log_are_kept(
    models: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--output", str(tmp_path / "log"), "--json", str(tmp_path / "report")]
    arguments = [
        "bench",
        "sampling",
        *BRIEF,
        *models,
        "--data",
        str(data),
        "--verifiers",
        "block,traversal",
        *files,
        *FEW,
    ]
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
