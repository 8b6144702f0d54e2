"""Tests of the command `dynatui selector`: written files, printed output and refusals."""

import json
from pathlib import Path

import pytest

from dynatui.lab.commands.bench_result import left_s, shown, words
from dynatui.main import main
from tests import tiny


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pair = tiny.kindred_pair("neox", tmp_path_factory.mktemp("pair"))
    return ["--target", str(pair.target), "--draft", str(pair.draft), "--device", "cpu", "--dtype", "float32"]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", str(tmp_path / "none.toml"))
    (tmp_path / "none.toml").touch()


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


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["collect", "--data", "x", "--prompt", "a"], "1 prompts are too few to train and evaluate; give 5 or"),
        (["collect", "--data", "x", "--temperatures", "a"], "--temperatures is 'a'; give a number, or several with"),
        (["collect", "--data", "x", "--temperatures", "3"], "temperature is 3; give 0 (greedy) to 2"),
        (["collect", "--data", "x", "--top-ps", "0"], "top_p is 0; give more than 0 and at most 1"),
        (
            ["collect", "--data", "x", "--verifiers", "best"],
            "roots cannot be labelled for verifier 'best'; choose from nss",
        ),
        (["collect", "--data", "/proc/x"], "cannot write /proc/x: "),
        (["collect"], "Missing option '--data'"),
        (["train", "--data", "/nonesuch", "--out", "x"], "/nonesuch holds no collection: No such file or directory"),
        (["eval", "--data", "x", "--selector", "/nonesuch"], "there is no selector /nonesuch; make one with dynatui"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selector", *arguments]) == 2
    told = [said for said in capsys.readouterr().err.splitlines() if "loading" not in said]
    assert len(told) == 1
    assert line in told[0]


def test_a_selector_of_another_pair_is_refused(selector: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--temperature", "1", "--verifier", "specinfer", "--drafting", "selector", "--selector", str(selector)]
    assert main([*given, "--headless", "--prompt", "x", "--device", "cpu"]) == 2
    assert "was trained for target with draft, but this pair is books-16m with books-1m" in capsys.readouterr().err


def test_roots_of_another_verifier_train_nothing(roots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--out", str(roots.parent / "other"), "--verifier", "traversal"]
    assert main(["selector", "train", "--data", str(roots), *given]) == 2
    assert "no roots were labelled for traversal, only for specinfer" in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "said"), [(41.2, "41 s"), (150, "2 min"), (9000, "2.5 h")])
def test_times_are_said_as_people_do(seconds: float, said: str) -> None:
    assert words(seconds) == said


def test_the_time_left_goes_by_the_pace_since_the_start() -> None:
    assert left_s(0.5, 0.75, 10.0) == pytest.approx(10.0)
    assert left_s(0.5, 0.5, 10.0) is None


def test_steps_are_told_now_and_then_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    class Step:
        def __init__(self, share: float) -> None:
            self.line, self.share = f"at {share}", share

    assert len(list(shown(Step(share) for share in (0.0, 0.3, 0.6, 1.0)))) == 4
    assert capsys.readouterr().err == "dynatui: at 0.0\ndynatui: at 1.0\n"
