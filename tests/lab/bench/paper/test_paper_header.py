"""A stopped measurement resumes only where old and new results are comparable; its header lists all commits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.lab.bench import record_log
from dynatui.lab.bench.machine import Machine
from dynatui.lab.bench.paper import records as header
from dynatui.lab.bench.paper.records import FORMAT, Header, Resumed, blocks_of
from dynatui.lab.bench.record_log import RecordLog
from tests.lab.bench.makers import MACHINE
from tests.lab.bench.paper.reports import block
from tests.lab.bench.paper.reports import header as first_line

PAIR: Any = SimpleNamespace(target=SimpleNamespace(device=torch.device("cpu")), context=64)


def went_on(monkeypatch: pytest.MonkeyPatch, path: Path, commit: str | None, machine: Machine = MACHINE) -> Header:
    """The header with which a measurement on this machine, at this commit, starts."""
    monkeypatch.setattr(record_log, "examined", lambda _: machine)
    monkeypatch.setattr(header, "source_commit", lambda: commit)
    monkeypatch.setattr(header, "cost_curve", lambda *_: first_line().costs)
    return header.header(PAIR, first_line().request, RecordLog(path, FORMAT), 8, lambda _: None)


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log made at commit "a" in which one of two blocks is missing."""
    went_on(monkeypatch, tmp_path / "log", "a")
    RecordLog(tmp_path / "log", FORMAT).add(block(0))
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"processor": "another"}, "processor a processor there, another here"),
        ({"cores": 4}, "cores 2 there, 4 here"),
        ({"accelerator": "a GPU"}, "accelerator None there, a GPU here"),
        ({"versions": {"dynatui": "0", "torch": "3"}}, "torch 2 there, 3 here"),
    ],
)
def test_another_machine_is_refused_by_what_differs_unless_nothing_is_missing(
    changes: dict[str, Any], why: str, half: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, other = half.read_bytes(), structs.replace(MACHINE, **changes)
    line = f"log was started on another machine: {why}; remove this file, or set --output to another folder$"
    with pytest.raises(ConfigError, match=line):
        went_on(monkeypatch, half, "a", other)
    assert half.read_bytes() == before
    RecordLog(half, FORMAT).add(block(1))
    whole = half.read_bytes()
    found = went_on(monkeypatch, half, "b", other)
    assert (found.commit, found.machine) == ("a", MACHINE)
    assert half.read_bytes() == whole


@pytest.mark.parametrize("changes", [{"load_before": 9.0}, {"threads": 2}, {"system": "Linux 7"}])
def test_load_and_threads_are_no_other_machine(
    changes: dict[str, Any], half: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert went_on(monkeypatch, half, "a", structs.replace(MACHINE, **changes)).machine == MACHINE


def test_each_commit_and_version_that_went_on_is_kept_once(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for commit in ("a", "b", "b", None, "a"):
        went_on(monkeypatch, half, commit)
    went_on(monkeypatch, half, "a", structs.replace(MACHINE, versions={"dynatui": "1", "torch": "2"}))
    found = [(each.commit, each.version) for each in RecordLog(half, FORMAT).of(Resumed)]
    assert found == [("b", "0"), (None, "0"), ("a", "0"), ("a", "1")]
    assert blocks_of(RecordLog(half, FORMAT)) == [block(0)]
