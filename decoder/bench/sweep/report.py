"""Report of a sweep's database, as `--json` keeps it. Knows no models."""

from typing import Any, Literal

import msgspec

from decoder.bench.sweep.outcome import Outcome, Refused
from decoder.bench.sweep.request import Request
from decoder.bench.sweep.spaces import Setting
from decoder.bench.sweep.trials import Sweep

SCHEMA = 1
State = Literal["waiting", "running", "done", "refused"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """State and result of one setting."""

    setting: Setting
    state: State
    outcome: Outcome | None = None
    """Result where the state is done."""
    reason: str | None = None
    """Reason where the state is refused."""
    worker: str | None = None
    """Machine and process that measured it last, or measures it now."""
    number: int | None = None
    """Number of the claim with the result."""
    deaths: int = 0
    """Workers that ended while they measured it."""

    @property
    def settled(self) -> bool:
        """Whether it has its result."""
        return self.state in ("done", "refused")

    @property
    def speed(self) -> float | None:
        """Speed over ar."""
        return self.outcome.speed.value if self.outcome else None


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a sweep at one time."""

    schema: int = SCHEMA
    study: str
    storage: str
    """URL of the database, without a password."""
    request: Request = msgspec.field(name="asked")
    machines: dict[str, dict[str, Any]]
    """Descriptions of the measuring machines, by name."""
    trials: tuple[Trial, ...]
    """All settings, in the order of the grid."""

    @property
    def settled(self) -> int:
        """Number of settings with a result."""
        return sum(trial.settled for trial in self.trials)

    @property
    def complete(self) -> bool:
        """Whether every setting has a result."""
        return self.settled == len(self.trials)

    @property
    def share(self) -> float:
        """Share of all tokens that are decoded in settings with a result."""
        done = sum(trial.setting.length for trial in self.trials if trial.settled)
        return done / sum(trial.setting.length for trial in self.trials)

    def best(self, count: int) -> list[Trial]:
        """Fastest settings, the fastest first."""
        known = [trial for trial in self.trials if trial.speed is not None]
        return sorted(known, key=lambda trial: trial.speed or 0.0, reverse=True)[:count]


def read(sweep: Sweep) -> SweepReport:
    """Report of the database's present content.

    Raises:
        DatabaseError: It cannot be read.
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
    given_up = f"{deaths} workers ended while they measured it" if state == "refused" else None
    return Trial(
        setting=setting,
        state=state,
        outcome=outcome,
        reason=refused or given_up,
        worker=worker,
        number=claim if result else None,
        deaths=deaths,
    )
