"""One worker in this process: what it measures, and what it leaves behind when it is stopped."""

from pathlib import Path

import pytest
from optuna.trial import TrialState

from decoder.bench.sweep.outcome import Outcome
from decoder.bench.sweep.spaces import Setting
from decoder.bench.sweep.trials import settled
from decoder.bench.sweep.worker import work
from tests.decoder.bench.sweep.sweeps import asked, fake_result, sqlite_in, sweep_in

FEW = asked(axes={"D": (3, 4, 5), "B": (2,), "tau": (0.01, 0.05), "T": (9,)})
SETTINGS = [setting.key for setting in FEW.settings]


def test_every_setting_is_measured_once_in_an_order_that_is_mixed(tmp_path: Path) -> None:
    order = []

    def measure(setting: Setting) -> Outcome:
        order.append(setting.key)
        return fake_result(setting)

    with sweep_in(sqlite_in(tmp_path), FEW) as sweep:
        work(sweep, measure)
        assert settled(sweep)
        done = sweep.study.get_trials(states=(TrialState.COMPLETE,))
    assert sorted(order) == sorted(SETTINGS)
    assert order != SETTINGS
    assert sorted(trial.user_attrs["key"] for trial in done) == sorted(SETTINGS)


@pytest.mark.parametrize("how", [KeyboardInterrupt, MemoryError])
def test_a_worker_that_is_stopped_gives_its_setting_back(how: type[BaseException], tmp_path: Path) -> None:
    def measure(_setting: Setting) -> Outcome:
        raise how

    with sweep_in(sqlite_in(tmp_path), FEW) as sweep:
        with pytest.raises(how):
            work(sweep, measure)
        waiting = sweep.study.get_trials(states=(TrialState.WAITING,))
        assert sorted(trial.user_attrs["key"] for trial in waiting) == sorted(SETTINGS)
        assert not sweep.study.get_trials(states=(TrialState.RUNNING,))


def test_a_worker_tells_that_it_lives_while_it_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    with sweep_in(sqlite_in(tmp_path), FEW) as sweep:
        record = sweep.storage.record_heartbeat

        def noted(trial_id: int) -> None:
            told.append(trial_id)
            record(trial_id)

        monkeypatch.setattr(sweep.storage, "record_heartbeat", noted)
        monkeypatch.setattr(sweep.storage, "heartbeat_interval", 0.01)

        def measure(_setting: Setting) -> Outcome:
            before = len(told)
            while len(told) < before + 2:
                pass
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            work(sweep, measure)
    assert len(set(told)) == 1
