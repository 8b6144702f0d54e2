"""Tests of `--draft lookup`: runs without a draft model, and refusals in one line."""

import json
import os
from pathlib import Path

import pytest

from decoder.methods.auto import Auto
from dynatui.lab.commands import bench, bench_options
from dynatui.main import main
from dynatui.session import Models
from tests.dynatui.cli.fake_screen import FakeScreen

ALONE = "a target needs a draft; give --draft MODEL, or --draft lookup, which copies drafts from earlier in the text"
NEEDY = (
    "alg1 cannot run without a draft model (suffix lookup and drafting heads are not draft models); "
    "leave alg1 out of --methods, or name a model with --draft"
)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--target", "x"], ALONE),
        (["--draft", "x"], "a draft model needs its target; give both --target and --draft, omit both, or"),
        (["--draft", "lookup", "--methods", "ar,alg1"], NEEDY),
        (
            ["--draft", "lookup", "--drafting", "iid", "--verifier", "traversal"],
            "delayed cannot run without a draft model",
        ),
        (["--headless", "--draft", "lookup", "--compile"], "--compile needs a draft model"),
        (["--headless", "--draft", "lookup", "--draft-dtype", "bfloat16"], "--draft-dtype has no effect without"),
        (["bench", "speed", "--target", "x"], ALONE),
        (["bench", "speed", "--draft", "lookup", "--methods", "alg1"], NEEDY),
        (["bench", "speed", "--draft", "lookup", "--hostile"], "--hostile needs a draft model, but --draft lookup"),
        (["bench", "speed", "--draft", "lookup", "--context", "9"], "a measurement of rounds needs a draft model"),
        (["bench", "paper", "--draft", "lookup", "--output", "DIR"], "dynatui bench paper needs a draft model"),
        (["bench", "sampling", "--draft", "lookup", "--output", "DIR"], "dynatui bench sampling needs a draft model"),
        (["tune", "--target", "x"], ALONE),
        (["tune", "--target", "x", "--drafts", "lookup"], "--drafts ranks draft models, and lookup is not a model"),
    ],
)
def test_what_cannot_go_without_a_draft_model_is_one_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.replace("DIR", str(tmp_path / "out")) for word in arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"dynatui: {line}")
    assert told.err.count("\n") == 1


def test_lookups_are_handed_on(screen: FakeScreen) -> None:
    assert main(["--draft", "lookup"]) == 0
    assert screen.sessions[0].models == Models(draft="lookup")


def test_a_knob_of_auto_turns_its_lookups_off(screen: FakeScreen) -> None:
    assert main(["--auto", "lookup=off"]) == 0
    assert screen.sessions[0].config.of(Auto) == Auto(lookup=False)


def test_the_embedded_target_decodes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--draft", "lookup", "--device", "cpu", "--dtype", "float32", "--max-new-tokens", "24"]
    assert main([*arguments, "--prompt", "Once upon a time, once upon a time, once"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["draft"] == "lookup"
    assert list(found["methods"]) == ["dynatree", "auto", "ar", "linear", "fixed"]
    assert all(figures["identical_to_ar"] for figures in found["methods"].values())
    assert all(figures["draft_forwards"] == 0 for figures in found["methods"].values())


def test_the_doctor_needs_one_model_for_lookups(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--draft", "lookup", "--device", "cpu"])
    told = capsys.readouterr().out
    assert "drafts are copied from earlier in the text, without a model" in told
    assert "draft " not in told.split("models", 1)[1].split("rounds", 1)[0]


def test_everything_that_needs_no_model_is_measured_where_nothing_is_named() -> None:
    methods = bench._with_draft(tuple(bench_options.all_methods().split(",")), "lookup")
    assert {"ar", "auto", "linear", "fixed", "dynatree", "bestfirst"} <= set(methods)
    assert not {"alg1", "delayed", "streaming"} & set(methods)
