"""Worker processes, and the process that starts them."""

import os
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from decoder.errors import ConfigError, DatabaseError, ModelError
from dynatui.lab.bench.database import understood
from dynatui.lab.bench.sweep.processes import Joined, Task, working
from dynatui.lab.bench.sweep.report import SweepReport
from dynatui.lab.bench.sweep.watching import looked_up, watched
from tests.lab.bench.sweep.fake_tasks import after, first_is_killed, killed, slow, task, unprepared
from tests.lab.bench.sweep.sweeps import ROOT, finished, request, sqlite_in

SETTINGS = [setting.key for setting in request().settings]


def held(report: SweepReport) -> list[str]:
    return [trial.setting.key for trial in report.trials if trial.state == "running"]


def test_workers_say_what_they_do_and_end_when_all_is_measured(tmp_path: Path) -> None:
    said = list(working(task(tmp_path), 2, 10))
    assert said.count("loading nothing") == 2
    names = [each.worker for each in said if isinstance(each, Joined) and each.study == request().study]
    assert len(set(names)) == 2
    assert finished(sqlite_in(tmp_path)) == dict.fromkeys(SETTINGS, 1)


def test_who_watches_sees_more_and_more_until_it_is_complete(tmp_path: Path) -> None:
    notes: list[str] = []
    seen: list[int] = []
    first_report_seen = tmp_path / "seen"
    for report in watched(task(tmp_path, partial(after, first_report_seen)), 1, 0.1, notes.append):
        seen.append(report.settled)
        first_report_seen.touch()
    assert notes == ["loading nothing"]
    assert seen == sorted(seen)
    assert seen[0] < seen[-1] == len(SETTINGS)


def test_settings_of_workers_that_are_ended_early_are_given_back(tmp_path: Path) -> None:
    with closing(watched(task(tmp_path, slow), 1, 0.1, print)) as reports:
        report = next(report for report in reports if report.settled and held(report))
    after = looked_up(understood(sqlite_in(tmp_path)), report.study)
    assert not held(after)
    assert sum(trial.deaths for trial in after.trials) == 0
    assert report.settled <= after.settled < len(SETTINGS)


def test_settings_of_others_are_given_back_when_a_worker_fails(tmp_path: Path) -> None:
    url = understood(sqlite_in(tmp_path))
    with pytest.raises(ModelError, match="signal 9"):
        list(watched(task(tmp_path, first_is_killed), 2, 0.1, print))
    after = looked_up(url, None)
    assert sum(trial.deaths for trial in after.trials) == 0
    assert len(held(after)) == 1, "that of the killed worker, until its heartbeat is missed"


def test_an_error_of_a_worker_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the draft does not fit"):
        list(working(Task(unprepared, understood(sqlite_in(tmp_path))), 1, 10))


def test_a_database_that_cannot_be_used_is_found_before_anything_is_loaded() -> None:
    with pytest.raises(DatabaseError, match="unable to open database file"):
        list(working(Task(unprepared, understood("sqlite:////nonesuch/x.db")), 1, 10))


def test_a_worker_that_is_killed_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a worker was ended by signal 9; finished settings are kept"):
        list(working(task(tmp_path, killed), 1, 10))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = "import sys; from tests.lab.bench.sweep.fake_tasks import main; main(sys.argv[1])"
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    assert parent.stdout
    assert b"Joined" in parent.stdout.readline()
    worker = _worker(tmp_path)
    assert _runs(worker)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 20
    while _runs(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _worker(folder: Path) -> int:
    """Id of the worker process that measures a setting."""
    while True:
        report = looked_up(understood(sqlite_in(folder)), None)
        for trial in report.trials:
            if trial.state == "running":
                return int((trial.worker or "").rpartition(":")[2])


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
