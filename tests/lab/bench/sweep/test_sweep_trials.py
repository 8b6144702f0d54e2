"""Workers claim settings: claimed once, kept once, returned, and free again after a worker died."""

import sqlite3
import time
from pathlib import Path

import optuna
import pytest

from decoder.errors import ConfigError, DatabaseError
from dynatui.lab.bench.database import understood
from dynatui.lab.bench.sweep.outcome import Refused
from dynatui.lab.bench.sweep.report import read
from dynatui.lab.bench.sweep.trials import (
    LIVES,
    Sweep,
    claimed,
    existing,
    given_back,
    joined,
    kept,
    make,
    prolonged,
    require_sweeps,
    returned,
    settled,
    worker_name,
)
from dynatui.lab.tuning import optuna_database
from tests.lab.bench.sweep.sweeps import done, outcome, request, sqlite_in, states, sweep_in

FEW = request(axes={"D": (3, 4), "B": (2,), "tau": (0.05,), "T": (9,)})
AT_ONCE_S = 1
"""A grace that ends soon."""


@pytest.fixture
def sweep(database: str) -> Sweep:
    return sweep_in(database, FEW)


def test_each_setting_is_there_once_however_many_join(sweep: Sweep, database: str) -> None:
    for _ in range(2):
        assert states(sweep_in(database, FEW)) == ["waiting", "waiting"]
    with sweep.database.reading() as transaction:
        assert len(transaction.rows("SELECT setting FROM sweep_settings")) == 2


def test_the_largest_grid_is_added_at_once_and_taken(database: str) -> None:
    large = request(axes={"D": tuple(range(1, 11)), "B": (1, 2), "tau": (0.01, 0.05), "T": tuple(range(1, 251))})
    sweep = sweep_in(database, large)
    assert states(sweep) == ["waiting"] * 10_000
    claim = claimed(sweep)
    assert claim
    assert kept(sweep, claim, outcome())
    assert states(sweep).count("done") == 1


def test_a_setting_is_taken_by_one_worker(sweep: Sweep, database: str) -> None:
    one, two = claimed(sweep), claimed(sweep_in(database, FEW))
    assert one
    assert two
    assert one.setting != two.setting
    assert claimed(sweep) is None
    assert not settled(sweep)


def test_a_result_is_kept_with_all_its_figures(sweep: Sweep) -> None:
    for _ in range(2):
        claim = claimed(sweep)
        assert claim
        assert kept(sweep, claim, outcome(2.5))
    assert [trial.outcome for trial in read(sweep).trials] == [outcome(2.5)] * 2
    assert settled(sweep)
    assert claimed(sweep) is None


def test_a_refused_setting_is_settled_without_a_speed(sweep: Sweep) -> None:
    claim = claimed(sweep)
    assert claim
    assert kept(sweep, claim, Refused(reason="its text differs"))
    (trial,) = [trial for trial in read(sweep).trials if trial.state == "refused"]
    assert (trial.speed, trial.reason) == (None, "its text differs")
    other = claimed(sweep)
    assert other
    assert other.setting != claim.setting
    kept(sweep, other, outcome())
    assert settled(sweep)


def test_what_is_given_back_is_there_for_the_next_and_costs_no_life(sweep: Sweep) -> None:
    for _ in range(2 * (LIVES + 1)):
        claim = claimed(sweep)
        assert claim
        returned(sweep, claim)
    assert states(sweep) == ["waiting", "waiting"]
    assert [trial.deaths for trial in read(sweep).trials] == [0, 0]


def test_what_ended_workers_held_is_given_back_and_nothing_else(sweep: Sweep) -> None:
    claim = claimed(sweep)
    assert claim
    given_back(sweep, ["elsewhere:1"])
    assert sorted(states(sweep)) == ["running", "waiting"]
    given_back(sweep, [worker_name()])
    assert states(sweep) == ["waiting", "waiting"]
    assert not kept(sweep, claim, outcome())


def test_a_dead_worker_s_setting_is_free_again_and_its_late_result_does_not_count(database: str) -> None:
    sweep = sweep_in(database, FEW, grace_s=AT_ONCE_S)
    late = claimed(sweep)
    assert late
    time.sleep(AT_ONCE_S + 0.1)
    again, other = claimed(sweep), claimed(sweep)
    assert again
    assert other
    assert again.setting == late.setting
    assert not kept(sweep, late, outcome(9.0))
    assert kept(sweep, again, outcome(2.0))
    returned(sweep, late)
    assert [(trial.speed, trial.deaths) for trial in done(sweep)] == [(2.0, 1)]


def test_a_lease_that_is_prolonged_does_not_run_out(database: str) -> None:
    sweep = sweep_in(database, FEW, grace_s=AT_ONCE_S)
    one, other = claimed(sweep), claimed(sweep)
    assert one
    assert other
    for _ in range(4):
        time.sleep(AT_ONCE_S / 3)
        prolonged(sweep, one)
    again = claimed(sweep)
    assert again
    assert again.setting == other.setting
    assert kept(sweep, one, outcome())


def test_a_setting_that_kills_its_workers_is_given_up(database: str) -> None:
    sweep = sweep_in(database, FEW, grace_s=-1)  # each lease has expired when it starts
    for _ in range(2 * LIVES):
        assert claimed(sweep)
    assert claimed(sweep) is None
    assert settled(sweep)
    assert {(trial.state, trial.reason, trial.worker) for trial in read(sweep).trials} == {
        ("refused", f"{LIVES} workers ended while measuring this setting", None)
    }


def test_a_study_of_another_question_is_refused(sweep: Sweep, database: str) -> None:
    line = f"study '{sweep.study}' was started with other values of axes, seed; give the same values, or set --study"
    with pytest.raises(ConfigError, match=line):
        sweep_in(database, request(seed=1), sweep.study)
    assert sweep_in(database, request(seed=1), "another").study == "another"


def test_a_study_of_another_version_is_refused(sweep: Sweep) -> None:
    with sweep.database.alone() as transaction:
        transaction.change("INSERT INTO sweeps VALUES ('birds', '{}')")
    with pytest.raises(DatabaseError, match="the study 'birds' is not a sweep that this version"):
        joined(sweep.database, FEW, "birds")
    with pytest.raises(DatabaseError, match="the study 'birds' is not a sweep that this version"):
        existing(sweep.database, "birds")


def test_a_study_that_somebody_deletes_is_one_line(sweep: Sweep) -> None:
    with sweep.database.alone() as transaction:
        transaction.change("DELETE FROM sweeps")
    with pytest.raises(DatabaseError, match="the study was deleted from "):
        claimed(sweep)


def test_the_only_study_needs_no_name(sweep: Sweep) -> None:
    assert existing(sweep.database, None).request == FEW
    joined(sweep.database, FEW, "other")
    with pytest.raises(ConfigError, match=rf"holds several studies \({sweep.study}, other\); set --study to one"):
        existing(sweep.database, None)
    assert existing(sweep.database, "other").request == FEW
    with pytest.raises(ConfigError, match=f"there is no study 'x'; the database holds {sweep.study}, other"):
        existing(sweep.database, "x")


def test_looking_makes_no_database_and_no_tables(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="there is no database"):
        require_sweeps(understood(sqlite_in(tmp_path)))
    assert not list(tmp_path.iterdir())
    with sqlite3.connect(tmp_path / "sweeps.db") as other:
        other.execute("CREATE TABLE birds (name TEXT)")
    other.close()
    before = (tmp_path / "sweeps.db").read_bytes()
    with pytest.raises(DatabaseError, match="holds no sweep"):
        require_sweeps(understood(sqlite_in(tmp_path)))
    assert (tmp_path / "sweeps.db").read_bytes() == before


def test_sweeps_that_were_kept_as_studies_of_optuna_are_refused_and_its_other_studies_are_not(database: str) -> None:
    with optuna_database.opened(understood(database)) as storage:
        study = optuna.create_study(storage=storage, study_name="tuned")
        make(understood(database))
        study.set_user_attr("asked", {"space": "fixed"})
    for use in (make, require_sweeps):
        with pytest.raises(DatabaseError, match="sweeps of an earlier version of dynatui, stored as studies of Optuna"):
            use(understood(database))
