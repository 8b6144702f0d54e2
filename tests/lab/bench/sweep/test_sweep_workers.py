"""Worker processes on one database: killed, resumed, concurrent, and with a lost database."""

from pathlib import Path
from random import Random

import pytest

from dynatui.lab.bench.sweep.report import Trial
from tests.lab.bench.sweep.sweeps import (
    NEVER_S,
    FakeWorker,
    fake_result,
    finished,
    header,
    request,
    results,
    sqlite_in,
)
from tests.postgres import Server

KILLS = 2
SETTINGS = [setting.key for setting in request().settings]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "begun"


def test_a_sweep_killed_twice_loses_and_repeats_nothing(database: str, log: Path) -> None:
    random = Random(database.partition(":")[0])
    before: dict[str, Trial] = {}
    for _ in range(KILLS):
        worker = FakeWorker(database, log)
        worker.wait_for_measurements(random.randint(3, 9))
        worker.kill()
        known = results(database)
        assert before.items() <= known.items()
        before = known
    assert 0 < len(before) < len(SETTINGS)
    assert FakeWorker(database, log).ended() == (0, "")
    assert finished(database) == dict.fromkeys(SETTINGS, 1)
    assert before.items() <= results(database).items()
    assert len(header(log)) <= len(SETTINGS) + KILLS
    assert {key: trial.outcome for key, trial in results(database).items()} == {
        setting.key: fake_result(setting) for setting in request().settings
    }


def test_two_workers_share_one_database(database: str, log: Path, tmp_path: Path) -> None:
    other = tmp_path / "others"
    workers = [FakeWorker(database, log, 0.15, NEVER_S), FakeWorker(database, other, 0.15, NEVER_S)]
    assert [worker.ended() for worker in workers] == [(0, "")] * 2
    assert finished(database) == dict.fromkeys(SETTINGS, 1)
    assert sorted(header(log) + header(other)) == sorted(SETTINGS)
    assert header(log)
    assert header(other)


def test_workers_that_start_at_the_same_moment_measure_each_setting_once(database: str, log: Path) -> None:
    workers = [FakeWorker(database, log, 0.01, NEVER_S) for _ in range(3)]
    assert [worker.ended() for worker in workers] == [(0, "")] * 3
    assert finished(database) == dict.fromkeys(SETTINGS, 1)
    assert sorted(header(log)) == sorted(SETTINGS)


def test_what_a_killed_worker_held_is_measured_once_more_while_another_works(database: str, log: Path) -> None:
    held = FakeWorker(database, log, 60)
    held.wait_for_measurements(1)
    other = FakeWorker(database, log)
    other.wait_for_measurements(3)
    held.kill()
    assert other.ended() == (0, "")
    (again,) = [key for key in SETTINGS if header(log).count(key) == 2]
    assert again == header(log)[0]
    assert finished(database) == dict.fromkeys(SETTINGS, 1)


def test_a_server_that_goes_away_is_one_line_and_no_result_is_kept_by_half(server: Server, log: Path) -> None:
    worker = FakeWorker(server.url, log, 0.3)
    worker.wait_for_measurements(2)
    server.stop()
    code, said = worker.ended()
    assert code == 2
    assert said.startswith("dynatui: cannot use the database postgresql+psycopg://")
    assert said.count("\n") == 1
    server.start()
    assert FakeWorker(server.url, log).ended() == (0, "")
    assert finished(server.url) == dict.fromkeys(SETTINGS, 1)


def test_a_server_that_is_away_for_a_moment_costs_nothing(server: Server, log: Path) -> None:
    worker = FakeWorker(server.url, log, 3)
    worker.wait_for_measurements(1)
    server.stop()
    server.start()
    worker.wait_for_measurements(1)
    worker.kill()
    assert finished(server.url).total() == 1


def test_a_file_that_goes_away_is_one_line(tmp_path: Path, log: Path) -> None:
    worker = FakeWorker(sqlite_in(tmp_path), log, 0.3)
    worker.wait_for_measurements(2)
    (tmp_path / "sweeps.db").unlink()
    code, said = worker.ended()
    assert code == 2
    assert said.startswith(f"dynatui: cannot use the database sqlite:///{tmp_path}")
    assert said.count("\n") == 1
    assert not (tmp_path / "sweeps.db").exists()


def test_the_grid_of_these_tests_has_24_settings() -> None:
    assert len(set(SETTINGS)) == 24
