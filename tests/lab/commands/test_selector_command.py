"""Tests of the command `dynatui selector`: written files and printed output."""

import json
from pathlib import Path

import pytest

from dynatui.main import main

COLLECTED = [
    *[word for text in ("It rains", "A door", "The sea", "He ran", "Now") for word in ("--prompt", text)],
    *("--max-new-tokens", "24", "--every", "3", "--trees", "1", "--temperatures", "1", "--verifiers", "specinfer"),
]


@pytest.fixture(scope="module")
def roots(models: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roots") / "here"
    assert main(["selector", "collect", "--data", str(folder), *models, *COLLECTED]) == 0
    return folder


@pytest.fixture(scope="module")
def selector(roots: Path) -> Path:
    file = roots.parent / "selector.safetensors"
    assert main(["selector", "train", "--data", str(roots), "--out", str(file), "--epochs", "2"]) == 0
    return file


def test_a_selector_is_compared_with_the_best_shape(
    roots: Path, selector: Path, models: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--prompt", "It rains", "--max-new-tokens", "8"]
    code = main(["selector", "eval", "--data", str(roots), "--selector", str(selector), *models, *given])
    out, err = capsys.readouterr()
    assert code == 0
    predicted, decoded = out.split("decoded\n")
    assert predicted.startswith("predicted, verifier specinfer\n")
    setting, top_p, count = predicted.splitlines()[2].split()[:3]
    assert (setting, top_p, count) == ("1", "1", "8")
    assert decoded.splitlines()[1].split()[:2] == ["1", "1"]
    assert "1 of 1 texts" in err


def test_a_selector_drafts(selector: Path, models: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sampled = ["--temperature", "1", "--verifier", "specinfer", "--drafting", "selector", "--selector", str(selector)]
    run = ["--json", "--prompt", "It rains", "--max-new-tokens", "12", "--methods", "delayed,ar"]
    assert main([*models, *sampled, *run]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["methods"]["delayed"]["committed"] == 12


def test_what_was_collected_is_not_collected_again(
    roots: Path, models: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selector", "collect", "--data", str(roots), *models, *COLLECTED]) == 0
    assert "5 of 5 texts done, 0 roots labelled in this run" in capsys.readouterr().err


def test_a_selector_of_another_pair_is_refused(selector: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--temperature", "1", "--verifier", "specinfer", "--drafting", "selector", "--selector", str(selector)]
    assert main([*given, "--headless", "--prompt", "x", "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert "was trained for target with draft (" in told
    assert ", but this pair is books-16m with books-1m (" in told


def test_roots_of_another_verifier_train_nothing(roots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--out", str(roots.parent / "other"), "--verifier", "traversal"]
    assert main(["selector", "train", "--data", str(roots), *given]) == 2
    assert "no roots were labelled for traversal, only for specinfer" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_line(models: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selector", "collect", "--data", "/proc/x", *models]) == 2
    (told,) = [said for said in capsys.readouterr().err.splitlines() if "loading" not in said]
    assert "cannot write /proc/x: " in told
