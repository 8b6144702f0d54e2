"""Tests of `--tensor-parallel`: whether a process launches ranks, leads them or runs alone."""

import shlex
from typing import Any

import pytest

from decoder.run.config import RunConfig
from decoder.tensor_parallel.ranks import Ranks
from dynatui import main as cli
from dynatui.cli import launcher, ranks
from dynatui.record.command_line import command_line
from dynatui.session import Models, Session
from tests.dynatui.cli.fake_screen import FakeScreen, Refused


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of ranks of each launch, which starts no process."""
    counts: list[int] = []

    def launch(count: int, arguments: list[str], **_: Any) -> int:
        assert arguments == ["--tensor-parallel", str(count)]
        counts.append(count)
        return 7

    monkeypatch.setattr(launcher, "launch", launch)
    return counts


def told(monkeypatch: pytest.MonkeyPatch, found: Ranks) -> None:
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)


def test_one_process_launches_as_many_as_asked_for_and_decodes_nothing(screen: FakeScreen, launched: list[int]) -> None:
    assert cli.main(["--tensor-parallel", "3"]) == 7
    assert (launched, screen.sessions) == ([3], [])


def test_more_than_a_machine_has_use_for_are_not_launched(refused: Refused) -> None:
    assert "more than 16 processes on this machine" in refused("--tensor-parallel", "17")
    assert refused("--tensor-parallel", "4000")


def test_without_the_option_nothing_is_launched(screen: FakeScreen, launched: list[int]) -> None:
    assert cli.main([]) == 0
    assert (launched, screen.sessions[-1].tensor_parallel) == ([], 1)


def test_the_first_of_those_that_were_started_leads(
    screen: FakeScreen, launched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, Ranks(0, 3, local=0, local_count=3))
    assert cli.main(["--tensor-parallel", "3"]) == 0
    assert (launched, screen.sessions[-1].tensor_parallel) == ([], 3)


@pytest.mark.usefixtures("launched")
def test_the_others_follow_with_the_same_models(screen: FakeScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    following: list[tuple[Ranks, object]] = []

    def follow(found: Ranks, models: Models) -> int:
        following.append((found, models.target))
        return 0

    second = Ranks(1, 3, local=1, local_count=3)
    told(monkeypatch, second)
    monkeypatch.setattr(ranks, "_follow", follow)
    monkeypatch.setattr(ranks, "_leave_signals_to_the_leader", lambda: None)
    assert cli.main(["--tensor-parallel", "3", "--target", "t", "--draft", "d"]) == 0
    assert (following, screen.sessions) == ([(second, "t")], [])


@pytest.mark.usefixtures("launched")
def test_another_number_than_was_started_is_refused(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    told(monkeypatch, Ranks(0, 3, local=0, local_count=3))
    assert "WORLD_SIZE says that 3 processes" in refused("--tensor-parallel", "2")


def test_the_command_line_that_repeats_a_session_has_the_option() -> None:
    session = Session(("x",), Models("big", "small"), RunConfig(), tensor_parallel=4)
    words = shlex.split(command_line(session))
    assert words[words.index("--tensor-parallel") + 1] == "4"
    assert "--tensor-parallel" not in command_line(Session(("x",), Models("big", "small")))


def test_without_a_number_it_is_no_unknown_option(refused: Refused) -> None:
    assert refused("--tensor-parallel") == "Option '--tensor-parallel' requires an argument; see dynatui --help"
