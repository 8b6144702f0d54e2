"""One worker in this process: its measurements, and the database after it is stopped."""

from pathlib import Path
from typing import Any

import pytest

from decoder.errors import DatabaseError
from dynatui.lab.bench.sweep import trials, worker
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.spaces import Setting
from dynatui.lab.bench.sweep.trials import Claim, Sweep, settled
from dynatui.lab.bench.sweep.worker import KEPT_ATTEMPTS, work
from tests.lab.bench.sweep.sweeps import done, fake_result, request, sqlite_in, states, sweep_in

FEW = request(axes={"D": (3, 4, 5), "B": (2,), "tau": (0.01, 0.05), "T": (9,)})
SETTINGS = [setting.key for setting in FEW.settings]


def test_every_setting_is_measured_once_in_an_order_that_is_mixed(tmp_path: Path) -> None:
    order = []

    def measure(setting: Setting) -> Outcome:
        order.append(setting.key)
        return fake_result(setting)

    sweep = sweep_in(sqlite_in(tmp_path), FEW)
    work(sweep, measure)
    assert settled(sweep)
    assert sorted(order) == sorted(SETTINGS)
    assert order != SETTINGS
    assert [trial.setting.key for trial in done(sweep)] == SETTINGS


@pytest.mark.parametrize("how", [KeyboardInterrupt, MemoryError])
def test_a_worker_that_is_stopped_gives_its_setting_back(how: type[BaseException], tmp_path: Path) -> None:
    def measure(_setting: Setting) -> Outcome:
        raise how

    sweep = sweep_in(sqlite_in(tmp_path), FEW)
    with pytest.raises(how):
        work(sweep, measure)
    assert states(sweep) == ["waiting"] * len(SETTINGS)


def test_a_result_is_kept_though_the_database_is_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [DatabaseError("cannot use the database")] * (KEPT_ATTEMPTS - 1)

    def kept(*given: Any) -> bool:
        if away:
            raise away.pop()
        return trials.kept(*given)

    monkeypatch.setattr(worker, "kept", kept)
    sweep = sweep_in(sqlite_in(tmp_path), FEW, heartbeat_s=0.01)
    work(sweep, fake_result)
    assert len(done(sweep)) == len(SETTINGS)


def test_a_database_that_stays_away_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(*_given: Any) -> bool:
        raise DatabaseError("cannot use the database")

    monkeypatch.setattr(worker, "kept", kept)
    with pytest.raises(DatabaseError):
        work(sweep_in(sqlite_in(tmp_path), FEW, heartbeat_s=0.01), fake_result)


def test_a_worker_tells_that_it_lives_while_it_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def noted(sweep: Sweep, claim: Claim) -> None:
        told.append(claim.number)
        trials.prolonged(sweep, claim)

    monkeypatch.setattr(worker, "prolonged", noted)

    def measure(_setting: Setting) -> Outcome:
        before = len(told)
        while len(told) < before + 2:
            pass
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(sweep_in(sqlite_in(tmp_path), FEW, heartbeat_s=0.01), measure)
    assert len(set(told)) == 1
