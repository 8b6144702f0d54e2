"""Tests of the command `dynatui bench sweep`: refusals, progress, printed output and written files."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from dynatui.main import main
from tests import tiny
from tests.lab.commands.refusals import refused

ROOT = Path(__file__).parents[3]
SMALL = ("--axis", "tau_h=.7,.9", "--axis", "tau_l=.3", "--axis", "T=6,8", "--prompt", "The tree grows")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pair = tiny.kindred_pair("neox", tmp_path_factory.mktemp("pair"))
    return ["--target", str(pair.target), "--draft", str(pair.draft), "--dtype", "float32", "--device", "cpu"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "the argument SPACE is missing; give one of thresholds, breadth, depth, fixed"),
        (["wide"], "there is no space 'wide'; choose from thresholds, breadth, depth, fixed"),
        (["fixed", "--axis", "tau"], "--axis is 'tau'; give NAME=V,V,.., for example T=100,200"),
        (["fixed", "--axis", "tau_h=.9"], "the space fixed has no axis 'tau_h'; choose from D, B, tau, T"),
        (["fixed", "--axis", "D=deep"], "the axis D is 'deep', which is invalid; give whole numbers"),
        (["fixed", "--axis", "D=0"], "the fixed tree's depth is 0; give 1 or more"),
        (["fixed", "--preset", "paper"], "--preset has no effect on fixed; leave it out"),
        (["depth", "--preset", "mine"], "--preset is 'mine'; give one of tuned, paper, sampled"),
        (["depth", "--axis", "T=0"], "max_new_tokens is 0; give 1 or more"),
        (["fixed", "--shard", "2"], "--shard is '2'; give I/N, for example 1/3"),
        (["fixed", "--shard", "3/2"], "--shard is 3/2; give I/N with I from 1 to N"),
        (["fixed", "--output", "/proc/nonesuch"], "cannot make the folder /proc/nonesuch: No such file or directory"),
        (["fixed", "--show"], "space has no effect beside --show; leave space out"),
        (["--show", "--seed", "1"], "--seed has no effect beside --show; leave --seed out"),
        (["--show", "--output", "/nonesuch"], "/nonesuch holds no sweep; run a sweep first, or set --output"),
        (["fixed", "--json", "/nonesuch/x"], "cannot write /nonesuch/x: No such file or directory; set --json to"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "bench", "sweep", *arguments).startswith(line)


@dataclass(frozen=True)
class Measured:
    """Output folder and printed text of a sweep of `SMALL`."""

    folder: Path
    out: str
    err: str


@pytest.fixture(scope="module")
def measured(models: list[str], tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("sweep") / "new" / "folder"
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        assert main(["bench", "sweep", "thresholds", *SMALL, *models, "--output", str(folder)]) == 0
    return Measured(folder, out.getvalue(), err.getvalue())


def test_a_grid_is_measured_kept_and_shown_again(
    measured: Measured, models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "T=6, tau_l across" in measured.out
    assert "4 of 4 settings of thresholds" in measured.out
    assert "4 of 4: tau_h=" in measured.err
    assert "Warning" not in measured.err
    assert "[I " not in measured.err
    kept = ["--output", str(measured.folder), "--json", str(tmp_path / "report")]
    assert main(["bench", "sweep", "--show", *kept]) == 0
    assert capsys.readouterr().out == measured.out
    report = json.loads((tmp_path / "report").read_text(encoding="utf-8"))
    assert [trial["state"] for trial in report["trials"]] == ["done"] * 4
    assert report["machines"]["sweep-1-of-1"]["versions"]["torch"]
    assert main(["bench", "sweep", "thresholds", *SMALL, *models, *kept]) == 0
    again = capsys.readouterr()
    assert again.out == measured.out
    assert "4 of 4 settings are measured" in again.err


class Started:
    """A long sweep that runs in its own process."""

    def __init__(self, models: Sequence[str], output: Path) -> None:
        thresholds = ("--axis", "tau_h=.5,.6,.7,.8,.9", "--axis", "tau_l=.05,.1,.15,.2,.25,.3,.35,.4,.45")
        grid = [*thresholds, "--axis", "T=120", "--prompt", "The tree grows"]
        command = ["bench", "sweep", "thresholds", *grid, *models, "--output", str(output)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dynatui", *command],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, words: str) -> None:
        """Waits until a line of standard error contains the words."""
        assert self.process.stderr
        while words not in (line := self.process.stderr.readline()):
            assert line


def test_an_interrupted_sweep_shows_what_it_has(models: list[str], tmp_path: Path) -> None:
    started = Started(models, tmp_path)
    started.wait_for("1 of ")
    started.process.terminate()
    out, _ = started.process.communicate(timeout=60)
    assert started.process.returncode == 130
    assert "settings of thresholds" in out
    assert "not yet measured" in out
