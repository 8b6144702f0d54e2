"""What a sweep's database holds, in one value, as `--json` keeps it. Knows no models."""

from collections import defaultdict
from typing import Any, Literal

import msgspec
from optuna.trial import FrozenTrial, TrialState

from decoder.bench.sweep.asked import Asked
from decoder.bench.sweep.database import reported, shown
from decoder.bench.sweep.outcome import Outcome, Refused
from decoder.bench.sweep.spaces import Setting
from decoder.bench.sweep.trials import KEY, LIVES, MACHINE, WORKER, Sweep, deaths, has_result, result_of

SCHEMA = 1
State = Literal["waiting", "running", "done", "refused"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    setting: Setting
    state: State
    outcome: Outcome | None = None
    """Of what is done."""
    reason: str | None = None
    """Why what was refused has no speed."""
    worker: str | None = None
    """Machine and process that measured it last, or do so now."""
    number: int | None = None
    """Of the Optuna trial that has the result."""
    deaths: int = 0
    """Workers that ended while they measured it."""

    @property
    def settled(self) -> bool:
        """Whether it has its result."""
        return self.state in ("done", "refused")

    @property
    def speed(self) -> float | None:
        """Over ar."""
        return self.outcome.speed.value if self.outcome else None


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep as far as it has come."""

    schema: int = SCHEMA
    study: str
    storage: str
    """Its URL, without a password."""
    asked: Asked
    machines: dict[str, dict[str, Any]]
    """What each machine is that has measured, by its name."""
    trials: tuple[Trial, ...]
    """Every setting, in the order of the grid."""

    @property
    def settled(self) -> int:
        """Settings that have their result."""
        return sum(trial.settled for trial in self.trials)

    @property
    def complete(self) -> bool:
        """Whether every setting has its result."""
        return self.settled == len(self.trials)

    @property
    def share(self) -> float:
        """Of all tokens that are to be decoded, those of settings that have their result."""
        done = sum(trial.setting.length for trial in self.trials if trial.settled)
        return done / sum(trial.setting.length for trial in self.trials)

    def best(self, count: int) -> list[Trial]:
        """The fastest settings, the fastest first."""
        known = [trial for trial in self.trials if trial.speed is not None]
        return sorted(known, key=lambda trial: trial.speed or 0.0, reverse=True)[:count]


def read(sweep: Sweep) -> SweepReport:
    """What the database holds now.

    Raises:
        DatabaseError: It cannot be read.
    """
    with reported(sweep.storage.engine.url):
        trials = sweep.study.get_trials(deepcopy=False)
        about = sweep.study.user_attrs
    by_key: defaultdict[str, list[FrozenTrial]] = defaultdict(list)
    for trial in trials:
        by_key[trial.user_attrs[KEY]].append(trial)
    return SweepReport(
        study=sweep.study.study_name,
        storage=shown(sweep.storage.engine.url),
        asked=sweep.asked,
        machines={name.removeprefix(MACHINE): value for name, value in about.items() if name.startswith(MACHINE)},
        trials=tuple(_trial(setting, by_key[setting.key]) for setting in sweep.asked.settings),
    )


def _trial(setting: Setting, tried: list[FrozenTrial]) -> Trial:
    lost = deaths(tried)[setting.key]
    for trial in (each for each in tried if has_result(each)):
        result = result_of(trial)
        return Trial(
            setting=setting,
            state="done" if isinstance(result, Outcome) else "refused",
            outcome=result if isinstance(result, Outcome) else None,
            reason=result.reason if isinstance(result, Refused) else None,
            worker=trial.user_attrs.get(WORKER),
            number=trial.number,
            deaths=lost,
        )
    if lost >= LIVES:
        return Trial(
            setting=setting, state="refused", reason=f"{lost} workers ended while they measured it", deaths=lost
        )
    running = [trial for trial in tried if trial.state == TrialState.RUNNING]
    worker = running[0].user_attrs.get(WORKER) if running else None
    return Trial(setting=setting, state="running" if running else "waiting", worker=worker, deaths=lost)
