"""Tests of the command `dynatui bench sweep`: progress, printed output and written files."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynatui.lab.bench.on_pair import Progress
from dynatui.lab.commands import bench_sweep
from dynatui.main import main

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
