"""Who measures which setting: taken once, kept once, given back, and free again when a worker has died."""

import time
from collections.abc import Iterator

import optuna
import pytest
from optuna.trial import TrialState

from decoder.bench.sweep import trials
from decoder.bench.sweep.database import opened, understood
from decoder.bench.sweep.outcome import Refused
from decoder.bench.sweep.trials import (
    LIVES,
    Sweep,
    claimed,
    found,
    given_back,
    joined,
    kept,
    result_of,
    returned,
    settled,
    worker_name,
)
from decoder.errors import ConfigError, DatabaseError
from tests.decoder.bench.sweep.sweeps import NEVER_S, asked, outcome, sweep_in

FEW = asked(axes={"D": (3, 4), "B": (2,), "tau": (0.05,), "T": (9,)})
AT_ONCE_S = 1
"""A grace that is soon over."""


@pytest.fixture
def sweep(database: str) -> Iterator[Sweep]:
    with sweep_in(database, FEW) as found:
        yield found


def states(sweep: Sweep) -> list[str]:
    return [trial.state.name for trial in sweep.study.get_trials()]


def test_each_setting_is_enqueued_once_however_many_join(sweep: Sweep, database: str) -> None:
    for _ in range(2):
        with sweep_in(database, FEW) as other:
            assert states(other) == ["WAITING", "WAITING"]
    assert {trial.params["D"] for trial in sweep.study.get_trials()} == {3, 4}


def test_a_large_grid_is_enqueued_a_part_at_a_time_and_measured_whole(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "MOST_WAITING", 3)
    with sweep_in(database) as sweep:
        assert states(sweep) == ["WAITING"] * 3
        taken = []
        while claim := claimed(sweep):
            taken.append(claim.setting)
            assert states(sweep).count("WAITING") <= 3
            kept(sweep, claim, outcome())
        assert settled(sweep)
    assert sorted(each.key for each in taken) == sorted(each.key for each in asked().settings)


def test_a_setting_is_taken_by_one_worker(sweep: Sweep, database: str) -> None:
    with sweep_in(database, FEW) as other:
        one, two = claimed(sweep), claimed(other)
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
    assert [trial.value for trial in sweep.study.get_trials()] == [2.5, 2.5]
    assert [result_of(trial) for trial in sweep.study.get_trials()] == [outcome(2.5)] * 2
    assert settled(sweep)
    assert claimed(sweep) is None


def test_a_refused_setting_is_settled_without_a_speed(sweep: Sweep) -> None:
    claim = claimed(sweep)
    assert claim
    assert kept(sweep, claim, Refused(reason="its text differs"))
    (trial,) = sweep.study.get_trials(states=(TrialState.FAIL,))
    assert trial.value is None
    assert result_of(trial) == Refused(reason="its text differs")
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
    assert states(sweep).count("WAITING") == 2


def test_what_ended_workers_held_is_given_back_and_nothing_else(sweep: Sweep) -> None:
    claim = claimed(sweep)
    assert claim
    given_back(sweep, ["elsewhere:1"])
    assert states(sweep) == ["RUNNING", "WAITING"]
    given_back(sweep, [worker_name()])
    assert states(sweep) == ["FAIL", "WAITING", "WAITING"]
    assert not kept(sweep, claim, outcome())


def test_a_dead_worker_s_setting_is_enqueued_anew_and_its_late_result_does_not_count(database: str) -> None:
    with sweep_in(database, FEW, grace_s=AT_ONCE_S) as sweep:
        late = claimed(sweep)
        assert late
        time.sleep(AT_ONCE_S + 1.5)
        first, again = claimed(sweep), claimed(sweep)
        assert first
        assert again
        assert again.setting == late.setting
        assert not kept(sweep, late, outcome(9.0))
        assert kept(sweep, again, outcome(2.0))
        returned(sweep, late)
        assert [trial.value for trial in sweep.study.get_trials(states=(TrialState.COMPLETE,))] == [2.0]


def test_a_setting_that_kills_its_workers_is_given_up(sweep: Sweep) -> None:
    for _ in range(2 * LIVES):
        claim = claimed(sweep)
        assert claim
        sweep.study.tell(claim.trial, state=TrialState.FAIL)  # as for a worker that died
    assert claimed(sweep) is None
    assert settled(sweep)


def test_a_study_of_another_question_is_refused(sweep: Sweep, database: str) -> None:
    line = f"the study '{sweep.study.study_name}' was begun with other axes, seed; ask for the same, or let --study"
    with pytest.raises(ConfigError, match=line), sweep_in(database, asked(seed=1), sweep.study.study_name):
        pass
    with sweep_in(database, asked(seed=1), "another") as other:
        assert other.study.study_name == "another"


def test_a_study_of_something_else_is_refused(database: str) -> None:
    with opened(understood(database), 1, NEVER_S) as storage:
        optuna.create_study(storage=storage, study_name="birds")
        with pytest.raises(DatabaseError, match="the study 'birds' is no sweep of this version"):
            joined(storage, FEW, "birds")


def test_a_study_that_somebody_deletes_is_one_line(sweep: Sweep) -> None:
    optuna.delete_study(study_name=sweep.study.study_name, storage=sweep.storage)
    with pytest.raises(DatabaseError, match="the study is gone from "):
        claimed(sweep)


def test_the_only_study_needs_no_name(sweep: Sweep) -> None:
    assert found(sweep.storage, None).asked == FEW
    joined(sweep.storage, FEW, "other")
    with pytest.raises(ConfigError, match=f"the database holds {sweep.study.study_name}, other; let --study name one"):
        found(sweep.storage, None)
    assert found(sweep.storage, "other").asked == FEW
    with pytest.raises(ConfigError, match=f"there is no study 'x'; the database holds {sweep.study.study_name}, other"):
        found(sweep.storage, "x")
