"""Tests of `benchmarks/first.py`: every stage is tried whatever becomes of the others, and no result is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks import first
from benchmarks.stages.journal import JOURNAL, Journal
from benchmarks.stages.plan import Stage
from benchmarks.stages.worker import ROOT
from tests.benchmarks.scripted_stages import stage

GOOD, BAD = stage("good", "works"), stage("bad", "fails")


class Session:
    """Runs of the program with one folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, stages: Sequence[Stage], *options: str) -> int:
        return first.main(["--output", str(self.folder), *options], stages)

    def lines(self, name: str = "") -> list[dict[str, Any]]:
        """Lines of the journal: all, or those of a stage."""
        text = (self.folder / JOURNAL).read_text(encoding="utf-8")
        return [line for line in map(json.loads, text.splitlines()) if name in ("", line["stage"])]

    def states(self, name: str) -> list[str]:
        return [line["state"] for line in self.lines(name) if "state" in line]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "out")


def test_stages_share_one_process_and_one_that_fails_says_why(session: Session) -> None:
    assert session.run([GOOD, BAD, stage("later", "works")]) == 1
    answers = [line for line in session.lines() if "answer" in line]
    assert [(line["stage"], line["answer"]) for line in answers] == [("good", 42), ("later", 42)]
    assert len({line["process"] for line in answers}) == 1
    assert session.states("good") == session.states("later") == ["began", "done"]
    assert session.states("bad") == ["began", "failed"]
    assert session.lines("bad")[-1]["text"] == "ValueError: a mistake"
    assert "Traceback" in (session.folder / "log.txt").read_text()


@pytest.mark.parametrize("work", ["crashes", "loses_the_device", "is_cut_off"])
def test_after_a_crash_a_new_process_repeats_the_stage_without_kernels_and_goes_on(session: Session, work: str) -> None:
    """The last stage has written part of a line, which is removed."""
    assert session.run([GOOD, stage("bad", work), stage("later", "works")]) == 0
    assert session.states("bad") == ["began", "died", "began", "done"]
    tried = {line["stage"]: line["kernels_tried"] for line in session.lines() if "answer" in line}
    assert tried == {"good": True, "bad": False, "later": False}
    assert session.states("good") == ["began", "done"]


def test_a_stage_that_crashes_again_without_kernels_is_given_up(session: Session) -> None:
    assert session.run([stage("bad", "always_crashes"), GOOD]) == 1
    assert session.states("bad") == ["began", "died"] * 2
    assert session.states("good") == ["began", "done"]


def test_a_stage_that_hangs_is_killed_with_what_it_started_and_repeated_after_all_others(session: Session) -> None:
    assert session.run([stage("slow", "hangs", limit_s=1.0), GOOD]) == 1
    assert session.states("slow") == ["began", "timed out"] * 2
    assert [line["stage"] for line in session.lines() if line.get("state") == "began"] == ["slow", "good", "slow"]
    for line in session.lines("slow"):
        if "child" in line:
            _when(lambda child=line["child"]: not _runs(child))


def test_a_stage_for_which_too_little_time_is_left_is_left_out(session: Session) -> None:
    assert session.run([stage("long", "works", least_s=600), GOOD], "--minutes", "1") == 1
    assert session.states("long") == []
    assert "s are left, and it needs 600" in session.lines("long")[0]["text"]
    assert session.states("good") == ["began", "done"]


def test_a_run_ends_in_time_whatever_a_stage_does(session: Session) -> None:
    began = time.monotonic()
    assert session.run([stage("slow", "hangs"), GOOD], "--minutes", ".05") == 1
    assert time.monotonic() - began < 40
    assert session.states("slow") == ["began", "timed out"]


def test_a_stage_that_is_done_is_not_run_again_unless_it_is_named_also_on_another_machine(
    session: Session, tmp_path: Path
) -> None:
    assert session.run([GOOD, BAD]) == 1
    other = Session(tmp_path / "other")
    other.folder.mkdir()
    shutil.copy(session.folder / JOURNAL, other.folder)
    assert other.run([GOOD, BAD]) == 1
    assert (other.states("good"), other.states("bad")) == (["began", "done"], ["began", "failed"] * 2)
    assert other.run([GOOD, BAD], "--only", "good") == 0
    assert other.states("good") == ["began", "done"] * 2


def test_a_dry_run_and_a_run_on_a_gpu_ignore_each_other_s_results(tmp_path: Path) -> None:
    real, dry = (Journal(tmp_path / JOURNAL, 0.0, dry) for dry in (False, True))
    dry.write("good", state="done")
    assert (real.states(), dry.states()) == ({}, {"good": "done"})
    real.write("good", state="failed")
    assert (real.states(), dry.states()) == ({"good": "failed"}, {"good": "done"})


@pytest.mark.parametrize("content", [b"\x00\xff\n", b"[1]\n", b'{"a": 1}\n'])
def test_a_journal_that_is_none_is_refused_in_one_line(
    session: Session, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    session.folder.mkdir()
    (session.folder / JOURNAL).write_bytes(content)
    assert session.run([GOOD]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert JOURNAL in line
    assert (session.folder / JOURNAL).read_bytes() == content


def test_an_unknown_stage_is_refused_with_the_known_ones(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    assert session.run([GOOD, BAD], "--only", "goof") == 2
    assert capsys.readouterr().out == "first.py: there is no stage goof; choose from good, bad\n"


def test_a_stage_that_lacks_packages_is_left_out_and_they_are_named_and_listed(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    needy = stage("needy", "works", packages=("nonesuch",))
    assert session.run([GOOD, needy], "--list") == 1
    good, other = capsys.readouterr().out.splitlines()
    assert good.split()[:2] == ["good", "not"]
    assert other.endswith("test stage needy; not installed: nonesuch")
    assert not session.folder.exists()
    assert session.run([needy, GOOD]) == 1
    assert "not installed: nonesuch; on a machine with a network" in capsys.readouterr().out.splitlines()[0]
    assert session.states("good") == ["began", "done"]
    assert session.run([needy]) == 2


def test_a_worker_ends_with_its_supervisor(session: Session) -> None:
    code = (
        "import sys; from benchmarks import first; from tests.benchmarks.scripted_stages import stage; "
        "first.main(sys.argv[1:], [stage('slow', 'hangs')])"
    )
    with subprocess.Popen([sys.executable, "-c", code, "--output", str(session.folder)], cwd=ROOT) as program:
        worker = _when(lambda: [line for line in session.lines() if "child" in line])[0]
        program.send_signal(signal.SIGKILL)
    _when(lambda: not _runs(worker["process"]))
    with suppress(ProcessLookupError):
        os.kill(worker["child"], signal.SIGKILL)


def _runs(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _when(found: Any) -> Any:
    until = time.monotonic() + 60
    while True:
        with suppress(FileNotFoundError, json.JSONDecodeError):
            if value := found():
                return value
        assert time.monotonic() < until
        time.sleep(0.05)
