"""Commands under torchrun: `bench speed` measures in the first process what can be spread; others refuse it."""

from typing import Any

import pytest

from decoder.methods import METHODS
from dynatui import main as cli
from dynatui.lab.commands import bench
from dynatui.lab.commands.bench_result import Measured
from tests.decoder.tensor_parallel.started_ranks import FIRST_OF_TWO, start_as
from tests.dynatui.cli.fake_screen import Refused

SPEED = ("bench", "speed")
OTHERS = (
    ("bench", "paper"),
    ("bench", "sweep", "fixed"),
    ("bench", "sampling"),
    ("tune",),
    ("selector", "collect", "--data", "x"),
    ("doctor",),
    ("replay", "x"),
)


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
    start_as(FIRST_OF_TWO, monkeypatch)


@pytest.mark.usefixtures("_started_by_torchrun")
def test_the_leader_measures_what_can_be_spread(asked: list[dict[str, Any]]) -> None:
    assert cli.main([*SPEED, "--prompt", "x"]) == 0
    (found,) = asked
    assert set(found["methods"]) == {name for name, method in METHODS.items() if not method.whole_target}


def test_one_process_measures_all(asked: list[dict[str, Any]]) -> None:
    assert cli.main([*SPEED, "--prompt", "x"]) == 0
    assert "streaming" in asked[0]["methods"]


@pytest.mark.usefixtures("_started_by_torchrun")
def test_what_needs_the_whole_target_is_refused_before_anything_is_measured(
    asked: list[dict[str, Any]], refused: Refused
) -> None:
    shapes = refused(*SPEED, "--shapes", "pythia-2.8b:pythia-70m")
    assert "each would do the whole work of dynatui bench speed --shapes; start" in shapes
    assert "--baselines measures transformers' own generation, which needs" in refused(*SPEED, "--baselines")
    idle = refused(*SPEED, "--streaming", "4x1020x5")
    assert "--streaming has no effect where streaming is not measured; leave --streaming out" in idle
    assert asked == []


@pytest.mark.usefixtures("_started_by_torchrun")
@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_commands_that_know_nothing_of_other_processes_say_so(command: tuple[str, ...], refused: Refused) -> None:
    named = " ".join(command[:2] if command[0] == "bench" else command[:1])
    said = f"WORLD_SIZE says that 2 processes were started, and each would do the whole work of dynatui {named}; start"
    assert said in refused(*command)
