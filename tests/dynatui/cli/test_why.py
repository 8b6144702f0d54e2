"""`dynatui why` tells what limits the methods of a recording."""

import json
from pathlib import Path

import pytest

from dynatui.cli.main import main

TRACES = Path(__file__).parents[2] / "traces"


def test_each_method_is_given_its_speed_its_limit_and_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(TRACES / "lighthouse.jsonl")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "dynatree is 2.16 times as fast as plain decoding" in told
    assert "What limits it most: the draft disagrees" in told
    assert "ar guesses nothing" in told


def test_no_line_is_wider_than_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    main(["why", str(TRACES / "demo.jsonl")])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_json_holds_the_numbers_behind_the_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(TRACES / "lighthouse.jsonl"), "--json"]) == 0
    methods = json.loads(capsys.readouterr().out.splitlines()[0])["methods"]
    assert methods["ar"] is None
    tree = methods["dynatree"]
    assert tree["speedup"] == pytest.approx(tree["tokens_per_round"] / tree["break_even"])
    assert [bound["gain"] for bound in tree["bounds"]] == sorted((b["gain"] for b in tree["bounds"]), reverse=True)


def test_a_prompt_that_would_steer_the_terminal_is_made_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8").splitlines()
    run = json.loads(first) | {"prompt": "\x1b]52;c;UFdORUQ=\x07 \u202e and more"}
    path = tmp_path / "hostile.jsonl"
    path.write_text("\n".join([json.dumps(run), *others]) + "\n", encoding="utf-8")
    main(["why", str(path)])
    assert not set(capsys.readouterr().out) & {"\x1b", "\x07", "\u202e"}


def test_a_file_that_is_no_recording_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("Once upon a time", encoding="utf-8")
    assert main(["why", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_text_that_is_not_that_of_plain_decoding_is_told_beside_its_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (TRACES / "lighthouse.jsonl").read_text(encoding="utf-8")
    path = tmp_path / "other.jsonl"
    path.write_text(text.replace('"committed":[236,2263]', '"committed":[236,9]', 1), encoding="utf-8")
    assert main(["why", str(path)]) == 0
    assert "Its text differs from ar's from token 1 on." in " ".join(capsys.readouterr().out.split())
