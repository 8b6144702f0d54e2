"""Tests of the command `dynatui bench paper`: refusals, written files and printed output."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoder.errors import require
from dynatui.lab.bench import data_sets
from dynatui.lab.bench.data_sets import TextSet
from dynatui.lab.bench.paper import job, records, write
from dynatui.lab.bench.paper.records import CostCurve
from dynatui.lab.commands import bench_paper
from dynatui.main import main
from tests.dynatui.cli.fake_screen import Refused

BRIEF = ("--quick", "--max-new-tokens", "6", "--prompts", "1", "--device", "cpu", "--dtype", "float32")
MAIN = (*BRIEF, "--experiments", "main", "--lanes", "linear K=4,phase 3")
SETS = {
    name: TextSet(name=name, title=name, prompts=("The tree grows", "A model"))
    for name in ("wikitext", "books", "pg19")
}


def text_sets(names: Sequence[str], *, folder: Path | None, prompts: int) -> tuple[TextSet, ...]:
    del folder
    require(
        all(name in SETS for name in names), f"there is no data set {names[0]!r}; choose from wikitext, books, pg19"
    )
    return tuple(msgspec.structs.replace(SETS[name], prompts=SETS[name].prompts[:prompts]) for name in names)


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = CostCurve(rows=(1,), verify_s=(1.0,), draft_s=(1.0,))
    monkeypatch.setattr(records, "cost_curve", lambda *_: costs)  # a real measurement takes seconds
    monkeypatch.setattr(data_sets, "text_sets", text_sets)
    monkeypatch.setattr(write, "find_spec", lambda _: None)  # drawing takes seconds
    monkeypatch.setattr(bench_paper, "text", lambda *_: "THE TABLE\n")


def run(*arguments: str) -> int:
    return main(["bench", "paper", *arguments])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--prompt-chars 5 --prompt-tokens 5", "give --prompt-chars or --prompt-tokens, not"),
        ("--data x --data-sets news", "there is no data set 'news'; choose from wikitext"),
        ("--data x --data-sets news --experiments best", "--experiments names 'best', which is unknown; choose from"),
        ("--data x --data-sets news --lanes best", "--lanes names 'best', which is unknown; choose from"),
        ("--data x --temperature -1", "temperature is -1; give 0 (greedy) to 2"),
        ("--data x --target x", "a target needs a draft; give --draft MODEL"),
        ("--output /proc/none --data x", "cannot write /proc/none: No such file or directory; name another"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_line_and_makes_no_folder(
    arguments: str, line: str, tmp_path: Path, refused: Refused
) -> None:
    assert refused("bench", "paper", "--output", str(tmp_path / "out"), *arguments.split()).startswith(line)
    assert "--target" in arguments or not (tmp_path / "out").exists()


def test_another_s_log_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letter = tmp_path / "log.jsonl"
    letter.write_text("Dear reader", encoding="utf-8")
    assert run("--output", str(tmp_path), "--data", "x") == 2
    assert "holds no measurement that this version can read; set --output to another folder" in capsys.readouterr().err
    assert letter.read_text(encoding="utf-8") == "Dear reader"


def test_a_measurement_as_asked_for_is_written_and_printed_and_goes_on_where_it_was(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a" / "b"
    given = ["--eos", "--seed", "7", "--warm-up", "3", "--repeats", "2", "--prompt-tokens", "4", "--data-sets", "books"]
    arguments = [*MAIN, *given, "--data", "x", *models, "--output", str(out)]
    assert run(*arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == "THE TABLE\n"
    assert re.search(rf"wrote \d+ files to {out}", captured.err)
    names = ["log.jsonl", "report.json", "report.md", "tables", "tables.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    report = json.loads((out / "report.json").read_bytes())
    assert (report["complete"], len(report["blocks"])) == (True, 2)
    assert {cell["lane"] for cell in report["cells"]} == {"ar", "linear K=4", "phase 3"}
    measured = (out / "log.jsonl").read_bytes()
    request = json.loads(measured.splitlines()[0])["asked"]
    assert (request["stops_at_eos"], request["seed"], request["warm_up"]) == (True, 7, 3)
    (experiment,) = request["experiments"]
    assert (experiment["most"], experiment["unit"], experiment["repeats"]) == (4, "tokens", 2)
    assert (experiment["data_set"], experiment["lengths"]) == ("books", [6])
    assert run(*arguments) == 0
    assert (out / "log.jsonl").read_bytes() == measured


@pytest.mark.parametrize("prompt", [0, 1])
def test_an_interruption_reports_what_is_complete(
    prompt: int, models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = job._block

    def interrupting(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT) if given[2][0].prompt == prompt else None
        return honest(*given)

    monkeypatch.setattr(job, "_block", interrupting)
    arguments = [*MAIN, "--prompts", "2", "--data-sets", "wikitext", *models, "--output", str(tmp_path)]
    assert run(*arguments) == 130
    captured, kept = capsys.readouterr(), tmp_path / "report.json"
    assert (captured.out, kept.exists()) == (("THE TABLE\n", True) if prompt else ("", False))
    assert ("interrupted before everything was measured at least once" in captured.err) is (prompt == 0)
    if prompt:
        report = json.loads(kept.read_bytes())
        assert (report["complete"], len(report["blocks"])) == (False, 1)


def test_more_tokens_than_fit_are_refused(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*MAIN, *models, "--output", str(tmp_path)]
    assert run(*arguments, "--max-new-tokens", "500") == 2
    assert "--max-new-tokens is 500, but the longest prompt leaves room for" in capsys.readouterr().err
