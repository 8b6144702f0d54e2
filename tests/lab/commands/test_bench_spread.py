"""Tests of `dynatui bench speed --tensor-parallel`: the measuring rank, skipped methods, and commands without it."""

from pathlib import Path
from typing import Any

import pytest

from decoder.methods import METHODS
from decoder.tensor_parallel.ranks import Ranks
from dynatui import main as cli
from dynatui.cli import launcher
from dynatui.lab.commands import bench
from dynatui.lab.commands.bench_result import Measured
from tests.dynatui.cli.fake_screen import FakeScreen

SPEED = ("bench", "speed")
LEADER = Ranks(0, 2, local=0, local_count=2)
OTHERS = (
    ("bench", "paper"),
    ("bench", "sweep", "fixed"),
    ("bench", "sampling"),
    ("tune",),
    ("selector", "collect", "--data", "x"),
    ("doctor",),
    ("replay", "x"),
)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", str(tmp_path / "none.toml"))
    (tmp_path / "none.toml").touch()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of each measurement, which is replaced by a function that measures nothing."""
    found: list[dict[str, Any]] = []

    def measure(**given: Any) -> Measured:
        found.append(given)
        return Measured("a table\n", {}, interrupted=False)

    for name in ("_on_texts", "_on_rounds"):
        monkeypatch.setattr(bench, name, measure)
    return found


@pytest.fixture
def _started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LEADER.variables().items():
        monkeypatch.setenv(name, value)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused command prints."""
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    return printed.err


def test_one_process_launches_as_many_as_asked_for_and_measures_nothing(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[int, list[str], bool]] = []

    def launch(count: int, arguments: list[str], *, drawn: bool, further_s: float) -> int:
        assert further_s > 0
        launched.append((count, arguments, drawn))
        return 7

    monkeypatch.setattr(launcher, "launch", launch)
    arguments = [*SPEED, "--tensor-parallel", "3", "--prompt-file", "-"]
    assert cli.main(arguments) == 7
    assert (launched, asked) == ([(3, arguments, False)], [])


@pytest.mark.usefixtures("_started_by_torchrun")
def test_the_leader_measures_what_can_be_spread(asked: list[dict[str, Any]]) -> None:
    assert cli.main([*SPEED, "--tensor-parallel", "2", "--prompt", "x"]) == 0
    (found,) = asked
    assert found["tensor_parallel"] == 2
    assert set(found["methods"]) == {name for name, method in METHODS.items() if not method.whole_target}


@pytest.mark.usefixtures("_started_by_torchrun")
def test_the_leader_measures_rounds_after_texts_of_given_lengths_too(asked: list[dict[str, Any]]) -> None:
    assert cli.main([*SPEED, "--tensor-parallel", "2", "--context", "64"]) == 0
    assert asked[0]["tensor_parallel"] == 2


def test_one_process_measures_all(asked: list[dict[str, Any]]) -> None:
    assert cli.main([*SPEED, "--prompt", "x"]) == 0
    assert asked[0]["tensor_parallel"] == 1
    assert "streaming" in asked[0]["methods"]


def test_what_needs_the_whole_target_is_refused_before_anything_is_launched(
    asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    spread = (*SPEED, "--tensor-parallel", "2")
    shapes = refused(capsys, *spread, "--shapes", "pythia-2.8b:pythia-70m")
    assert "--tensor-parallel has no effect beside --shapes; leave --tensor-parallel out" in shapes
    assert "--baselines measures transformers' own generation, which needs" in refused(capsys, *spread, "--baselines")
    idle = refused(capsys, *spread, "--streaming", "4x1020x5")
    assert "--streaming has no effect where streaming is not measured; leave --streaming out" in idle
    assert asked == []


@pytest.mark.usefixtures("_started_by_torchrun")
def test_processes_that_nobody_told_to_share_a_target_do_not_each_do_all(
    asked: list[dict[str, Any]], screen: FakeScreen, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "--tensor-parallel is 1, but WORLD_SIZE says that 2 processes were started; give both the same number"
    assert said in refused(capsys, *SPEED)
    assert said in refused(capsys)
    assert said in refused(capsys, *SPEED, "--shapes", "pythia-2.8b:pythia-70m")
    assert (asked, screen.sessions) == ([], [])


@pytest.mark.usefixtures("_started_by_torchrun")
@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_commands_that_know_nothing_of_other_processes_say_so(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    named = " ".join(command[:2] if command[0] == "bench" else command[:1])
    said = f"WORLD_SIZE says that 2 processes were started, and each would do the whole work of dynatui {named}; start"
    assert said in refused(capsys, *command)


@pytest.mark.parametrize("command", [command for command in OTHERS if command != ("doctor",)], ids=" ".join)
def test_commands_without_the_option_name_those_that_have_it(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, *command, "--tensor-parallel", "2")
    assert "has no --tensor-parallel; leave the option out, since only dynatui itself and dynatui bench speed" in said


@pytest.mark.parametrize("count", ["0", "-1", "x", "2000"])
@pytest.mark.parametrize("command", [(), SPEED], ids=["live", "bench"])
def test_a_number_of_processes_that_cannot_be_is_one_line(
    command: tuple[str, ...], count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Invalid value for '--tensor-parallel'" in refused(capsys, *command, "--tensor-parallel", count)


def test_one_process_of_one_is_as_good_as_alone(asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in Ranks(0, 1, local=0, local_count=1).variables().items():
        monkeypatch.setenv(name, value)
    assert cli.main([*SPEED, "--prompt", "x"]) == 0
    assert asked[0]["tensor_parallel"] == 1
