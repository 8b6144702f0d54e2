"""Tests of the command `dynatui bench sampling`: refusals, printed output and written files."""

import json
import shlex
from pathlib import Path

import pytest

from dynatui.lab.commands.bench_sampling import TASKS
from dynatui.main import main
from tests import tiny
from tests.lab.commands.refusals import refused

QUESTIONS = "".join(
    json.dumps({"question_id": number, "category": task, "turns": [f"Say something of {task}."]}) + "\n"
    for number, task in enumerate(TASKS.split(","))
)
BRIEF = shlex.split("--temperatures 0.8 --top-p '' --k 2 --length 1 --max-new-tokens 4 --device cpu")


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNATUI_DATA", raising=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "spec_bench").mkdir(parents=True)
    (tmp_path / "data" / "spec_bench" / "question.jsonl").write_text(QUESTIONS, encoding="utf-8")
    return tmp_path / "data"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pair = tiny.kindred_pair("neox", tmp_path_factory.mktemp("pair"))
    return ["--target", str(pair.target), "--draft", str(pair.draft), "--dtype", "float32"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--temperatures", "warm"], "--temperatures is 'warm'; give numbers with commas between them"),
        (["--temperatures", "-1"], "temperature is -1; give 0 (greedy) to 2"),
        (
            ["--temperatures", "0"],
            "at temperature 0, all verifiers decode greedily and so do not differ; give values above 0",
        ),
        (["--temperatures", "", "--top-p", ""], "no temperature was given; give --temperatures or --top-p"),
        (["--top-p", "0"], "top_p is 0; give more than 0 and at most 1 (all tokens)"),
        (["--verifiers", "best"], "--verifiers names best; choose from nss, "),
        (["--k", "0"], "--k is 0; give 1 to 8"),
        (["--length", "0"], "--length is 0; give 1 to 16"),
        (["--max-new-tokens", "0"], "--max-new-tokens is 0; give 1 or more"),
        (
            ["--prompt", "x", "--selector", "/nonesuch"],
            "there is no selector /nonesuch; make one with dynatui",
        ),
        (["--data", "/nonesuch"], "cannot read /nonesuch/spec_bench/question.jsonl: No such file or directory; set"),
        (["--prompt", "x", "--tasks", "math"], "--tasks has no effect beside prompts; leave --tasks out"),
        (["--prompt", "x", "--data", "/nonesuch"], "--data has no effect beside prompts; leave --data out"),
        (
            ["--target", "x"],
            "a target needs a draft; give --draft MODEL, or --draft lookup, which copies drafts from earlier in the",
        ),
        (["--json", "/nonesuch/x"], "cannot write /nonesuch/x: No such file or directory; set --json to another"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "bench", "sampling", *arguments).startswith(line)


def test_a_task_that_is_not_there_is_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "bench", "sampling", "--data", str(data), "--tasks", "law")
    assert line.startswith("--tasks names 'law', which is unknown; choose from writing")


def test_a_file_of_something_else_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letter = tmp_path / "letter"
    letter.write_text("Dear reader", encoding="utf-8")
    assert main(["bench", "sampling", "--output", str(letter)]) == 2
    assert "holds no measurement that this version can read; set --output to another file" in capsys.readouterr().err
    assert letter.read_text(encoding="utf-8") == "Dear reader"


def test_tables_are_printed_and_the_report_and_the_log_are_kept(
    models: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--output", str(tmp_path / "log"), "--json", str(tmp_path / "report")]
    arguments = ["bench", "sampling", *BRIEF, *models, "--data", str(data), "--verifiers", "block,traversal", *files]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "translation for Opus, math_reasoning for MATH500" in " ".join(printed.split())
    assert "Block efficiency" in printed
    report = json.loads((tmp_path / "report").read_text(encoding="utf-8"))
    assert {row["verifier"] for row in report["block_efficiency"]} == {"block", "traversal", "coupled"}
    measured = (tmp_path / "log").read_bytes()
    assert len(measured.splitlines()) == 1 + 5 + 5
    assert main(arguments) == 0
    assert (tmp_path / "log").read_bytes() == measured


def test_prompts_of_one_s_own_need_no_data(models: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--prompt", "The tree grows", "--verifiers", "nss", "--decoded", "0"]
    assert main(["bench", "sampling", *BRIEF, *models, *own]) == 0
    printed = capsys.readouterr().out
    assert "Spec-Bench" not in printed
    assert "Tokens a second" not in printed
