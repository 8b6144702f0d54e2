"""Report of a sweep: the content of its database, in the form written by `--json`.

This module does not depend on models.
"""

from typing import Any, Literal

import msgspec

from dynatui.lab.bench.sweep.outcome import Outcome, Refused
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Setting
from dynatui.lab.bench.sweep.trials import Sweep

SCHEMA = 1
State = Literal["waiting", "running", "done", "refused"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """State of one setting, and the setting's result if it was measured."""

    setting: Setting
    state: State
    outcome: Outcome | None = None
    """Result of the measurement; None unless the state is done."""
    reason: str | None = None
    """Reason why the setting has no speed; None unless the state is refused."""
    worker: str | None = None
    """Machine and process of the worker that is measuring the setting, or that measured it last."""
    number: int | None = None
    """Number of the claim that led to the result; claims are numbered over the whole study. None without a result."""
    deaths: int = 0
    """Number of workers that ended unexpectedly while measuring the setting."""

    @property
    def settled(self) -> bool:
        """Whether measuring the setting is finished, with or without a speed."""
        return self.state in ("done", "refused")

    @property
    def speed(self) -> float | None:
        """Median speed relative to plain decoding; None without a result."""
        return self.outcome.speed.value if self.outcome else None


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of all settings of a sweep at one moment."""

    schema: int = SCHEMA
    study: str
    storage: str
    """URL of the database, without the password."""
    request: SweepRequest = msgspec.field(name="asked")
    machines: dict[str, dict[str, Any]]
    """Descriptions of the machines on which workers ran, by host name."""
    trials: tuple[Trial, ...]
    """States and results of all settings, in the order of the grid."""

    @property
    def settled(self) -> int:
        """Number of settings whose measurement is finished."""
        return sum(trial.settled for trial in self.trials)

    @property
    def complete(self) -> bool:
        """Whether all settings are finished."""
        return self.settled == len(self.trials)

    @property
    def share(self) -> float:
        """Fraction of the sweep's tokens that belong to finished settings; used as the progress of the sweep."""
        done = sum(trial.setting.length for trial in self.trials if trial.settled)
        return done / sum(trial.setting.length for trial in self.trials)

    def best(self, count: int) -> list[Trial]:
        """The `count` fastest settings, in descending order of speed."""
        known = [trial for trial in self.trials if trial.speed is not None]
        return sorted(known, key=lambda trial: trial.speed or 0.0, reverse=True)[:count]


def read(sweep: Sweep) -> SweepReport:
    """Report of what the database now contains.

    Raises:
        DatabaseError: The database cannot be read.
    """
    with sweep.database.reading() as transaction:
        rows = transaction.rows(
            "SELECT setting, state, claim, worker, deaths, result FROM sweep_settings WHERE study = ?", sweep.study
        )
        machines = transaction.rows(
            "SELECT machine, about FROM sweep_machines WHERE study = ? ORDER BY machine", sweep.study
        )
    by_key = {key: row for key, *row in rows}
    return SweepReport(
        study=sweep.study,
        storage=sweep.database.shown,
        request=sweep.request,
        machines={name: msgspec.json.decode(about) for name, about in machines},
        trials=tuple(_trial(setting, *by_key[setting.key]) for setting in sweep.request.settings),
    )


def _trial(
    setting: Setting, state: State, claim: int | None, worker: str | None, deaths: int, result: str | None
) -> Trial:
    outcome = msgspec.json.decode(result, type=Outcome) if result and state == "done" else None
    refused = msgspec.json.decode(result, type=Refused).reason if result and state == "refused" else None
    given_up = f"{deaths} workers ended while measuring this setting" if state == "refused" else None
    return Trial(
        setting=setting,
        state=state,
        outcome=outcome,
        reason=refused or given_up,
        worker=worker,
        number=claim if result else None,
        deaths=deaths,
    )
