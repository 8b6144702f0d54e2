"""Which setting is measured by whom, kept as Optuna trials: each setting once, whatever workers die in between.

All decisions are transactions that no other worker's overlaps: to enqueue what is missing, to take a trial together
with its first heartbeat, and to keep a result together with all its figures. Knows not how settings are measured.
"""

import os
import platform
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import RandomSampler
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState

from decoder.bench.sweep.asked import Asked
from decoder.bench.sweep.database import alone, reported, unwarned
from decoder.bench.sweep.outcome import Outcome, Refused, Result
from decoder.bench.sweep.spaces import Number, Setting
from decoder.errors import ConfigError, DatabaseError, quoted, require

ASKED, MACHINE = "asked", "machine of "
"""User attributes of a study."""
KEY, WORKER, REASON, RETURNED = "key", "worker", "reason", "returned"
"""User attributes of a trial, beside the fields of an `Outcome`."""
LIVES = 5
"""A setting that so many workers died of is not tried again."""
MOST_WAITING = 64
"""Settings that have their trials before anybody takes them; more would take long to add in one transaction."""


@dataclass(frozen=True)
class Sweep:
    """One study of one database."""

    storage: RDBStorage
    study: optuna.Study
    asked: Asked


@dataclass(frozen=True)
class Claim:
    """A setting that one worker has taken."""

    setting: Setting
    trial: optuna.Trial
    trial_id: int


def joined(storage: RDBStorage, asked: Asked, name: str | None = None) -> Sweep:
    """The study that answers a question, with trials for the first settings; begun, if nobody has.

    Raises:
        ConfigError: The study of that name answers another question.
        DatabaseError: The database cannot be used.
    """
    name = asked.study if name is None else name
    with alone(storage):
        begun = name in optuna.get_all_study_names(storage)
        study = optuna.create_study(
            storage=storage, study_name=name, direction="maximize", sampler=RandomSampler(), load_if_exists=True
        )
        if begun:
            other = asked.differing(_asked(study))
            require(
                not other,
                f"the study {quoted(name)} was begun with other {', '.join(other)}; ask for the same, or let --study "
                "name another",
            )
        else:
            study.set_user_attr(ASKED, msgspec.to_builtins(asked))
        sweep = Sweep(storage, study, asked)
        _enqueue_missing(sweep)
    return sweep


def found(storage: RDBStorage, name: str | None) -> Sweep:
    """A study that is there already, by its name; without one, the only one.

    Raises:
        ConfigError: There is none of that name, or more than one to choose from.
        DatabaseError: The database cannot be used, or the study is none of ours.
    """
    with reported(storage.engine.url):
        names = optuna.get_all_study_names(storage)
        if name is None:
            require(len(names) > 0, "the database holds no study; run a sweep first")
            require(len(names) == 1, f"the database holds {', '.join(names)}; let --study name one")
        elif name not in names:
            raise ConfigError(f"there is no study {quoted(name)}; the database holds {', '.join(names) or 'none'}")
        study = optuna.load_study(storage=storage, study_name=name or names[0], sampler=RandomSampler())
        return Sweep(storage, study, _asked(study))


def noted(sweep: Sweep, machine: Mapping[str, Any]) -> None:
    """Keeps what this machine is."""
    with alone(sweep.storage):
        sweep.study.set_user_attr(MACHINE + platform.node(), machine)


def worker_name() -> str:
    """This process among all workers."""
    return f"{platform.node()}:{os.getpid()}"


def claimed(sweep: Sweep) -> Claim | None:
    """The next setting that nobody measures, or None where others hold all that are left."""
    with alone(sweep.storage):
        if not _enqueue_missing(sweep):
            return None
        with unwarned():
            trial = sweep.study.ask()
        trial.set_user_attr(WORKER, worker_name())
        known_as = trial_id(sweep, trial.number)
        sweep.storage.record_heartbeat(known_as)  # without one, nobody would ever see that its worker died
        key = trial.user_attrs[KEY]
    return Claim(next(setting for setting in sweep.asked.settings if setting.key == key), trial, known_as)


def kept(sweep: Sweep, claim: Claim, result: Result) -> bool:
    """Keeps a result; whether it counts: a worker that was thought dead finds its setting given to another."""
    with alone(sweep.storage):
        if not _held(sweep, claim):
            return False
        for name, value in msgspec.to_builtins(result).items():
            claim.trial.set_user_attr(name, value)
        if isinstance(result, Outcome):
            sweep.study.tell(claim.trial, result.speed.value)
        else:
            sweep.study.tell(claim.trial, state=TrialState.FAIL)
        return True


def returned(sweep: Sweep, claim: Claim) -> None:
    """Leaves a setting to others at once, before any heartbeat is missed."""
    with alone(sweep.storage):
        if _held(sweep, claim):
            claim.trial.set_user_attr(RETURNED, True)
            sweep.study.tell(claim.trial, state=TrialState.FAIL)
            _enqueue_missing(sweep)


def given_back(sweep: Sweep, workers: Collection[str]) -> None:
    """The same for all that workers held which somebody else has ended."""
    with alone(sweep.storage):
        for trial in sweep.study.get_trials(states=(TrialState.RUNNING,)):
            if trial.user_attrs[WORKER] in workers:
                sweep.storage.set_trial_user_attr(trial_id(sweep, trial.number), RETURNED, True)
                sweep.study.tell(trial.number, state=TrialState.FAIL)
        _enqueue_missing(sweep)


def trial_id(sweep: Sweep, number: int) -> int:
    """By what a storage knows a trial of a study."""
    study_id = sweep.storage.get_study_id_from_name(sweep.study.study_name)
    return sweep.storage.get_trial_id_from_study_id_trial_number(study_id, number)


def settled(sweep: Sweep) -> bool:
    """Whether every setting has its result."""
    with alone(sweep.storage):
        trials = sweep.study.get_trials(deepcopy=False)
    done, lost = {trial.user_attrs[KEY] for trial in trials if has_result(trial)}, deaths(trials)
    return all(setting.key in done or lost[setting.key] >= LIVES for setting in sweep.asked.settings)


def has_result(trial: FrozenTrial) -> bool:
    """Whether a trial says something of its setting."""
    return trial.state == TrialState.COMPLETE or REASON in trial.user_attrs


def deaths(trials: list[FrozenTrial]) -> Counter[str]:
    """How many workers died over each setting, by its key."""
    return Counter(
        trial.user_attrs[KEY]
        for trial in trials
        if trial.state == TrialState.FAIL and not {REASON, RETURNED} & trial.user_attrs.keys()
    )


def result_of(trial: FrozenTrial) -> Result | None:
    """What was kept of a trial; None: nothing yet."""
    if not has_result(trial):
        return None
    if trial.state == TrialState.COMPLETE:
        return msgspec.convert(trial.user_attrs, Outcome)
    return msgspec.convert(trial.user_attrs, Refused)


def _enqueue_missing(sweep: Sweep) -> bool:
    """Trials for settings that have none, a part of them at a time: others wait while they are added.

    Returns:
        Whether any waits to be taken.
    """
    with unwarned():
        fail_stale_trials(sweep.study)
    trials = sweep.study.get_trials(deepcopy=False)
    waiting = sum(trial.state == TrialState.WAITING for trial in trials)
    taken = {trial.user_attrs[KEY] for trial in trials if trial.state != TrialState.FAIL or has_result(trial)}
    lost, axes = deaths(trials), _distributions(sweep.asked)
    missing = [each for each in mixed(sweep.asked) if each.key not in taken and lost[each.key] < LIVES]
    for setting in missing[: max(0, MOST_WAITING - waiting)]:
        sweep.study.add_trial(
            optuna.create_trial(
                state=TrialState.WAITING,
                params=dict(setting.values),
                distributions=axes,
                user_attrs={KEY: setting.key},
            )
        )
    return bool(missing or waiting)


def mixed(asked: Asked) -> list[Setting]:
    """All settings in the order in which they are measured: the time left then follows from the time that it took."""
    settings = asked.settings
    return Random(asked.seed).sample(settings, len(settings))


def _distributions(asked: Asked) -> dict[str, BaseDistribution]:
    return {name: _range(values) for name, values in asked.axes.items()}


def _range(values: tuple[Number, ...]) -> BaseDistribution:
    low, high = min(values), max(values)
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high)
    return FloatDistribution(low, high)


def _held(sweep: Sweep, claim: Claim) -> bool:
    return sweep.storage.get_trial(claim.trial_id).state == TrialState.RUNNING


def _asked(study: optuna.Study) -> Asked:
    try:
        return msgspec.convert(study.user_attrs.get(ASKED), Asked)
    except msgspec.ValidationError:
        raise DatabaseError(
            f"the study {quoted(study.study_name)} is no sweep of this version; let --study name another"
        ) from None
