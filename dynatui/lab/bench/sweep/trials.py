"""Database of a sweep, with one row per setting: every setting is measured once, even if workers die.

Adding a sweep's settings, claiming a setting and storing its result are exclusive transactions. A claim is a lease,
which the worker prolongs while it measures; a setting whose lease has expired can be claimed again. This module does
not depend on how settings are measured.
"""

import os
import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from decoder.errors import ConfigError, DatabaseError, quoted, require, shortened
from dynatui.lab.bench.database import Database, Transaction
from dynatui.lab.bench.on_pair import differing
from dynatui.lab.bench.sweep.outcome import Outcome, Result
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Setting

LIVES = 5
"""Number of workers that must die while measuring a setting before the setting is refused."""
HEARTBEAT_S, GRACE_S = 10, 60
"""Seconds between two prolongations of a lease, and the duration of a lease in seconds."""
TABLES = (
    "CREATE TABLE IF NOT EXISTS sweeps (study TEXT PRIMARY KEY, asked TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sweep_machines ("
    "study TEXT, machine TEXT, about TEXT NOT NULL, PRIMARY KEY (study, machine))",
    """CREATE TABLE IF NOT EXISTS sweep_settings (
        study TEXT, setting TEXT,
        place INTEGER NOT NULL,        -- position in the order of measurement
        state TEXT NOT NULL,           -- waiting, running, done, refused
        claim INTEGER,                 -- serial number of the setting's latest claim; a study numbers its claims from 0
        worker TEXT, lease_until DOUBLE PRECISION,
        deaths INTEGER NOT NULL,       -- number of workers that died while measuring the setting
        result TEXT,
        PRIMARY KEY (study, setting))""",
)


@dataclass(frozen=True)
class Sweep:
    """Study in a database: access to the settings and results of one sweep."""

    database: Database
    study: str
    request: SweepRequest
    heartbeat_s: float = HEARTBEAT_S
    grace_s: float = GRACE_S


@dataclass(frozen=True)
class Claim:
    """Claim of a worker on a setting that the worker measures."""

    setting: Setting
    number: int
    """Number of the claim; in each study, claims are numbered from 0."""


def require_sweeps(database: Database) -> None:
    """Checks that a database exists and holds sweeps; creates no database.

    Raises:
        DatabaseError: The database cannot be reached, or holds no sweeps of this version.
    """
    file = database.file
    if file is not None and not file.is_file():
        raise DatabaseError(
            f"there is no database {shortened(file)}; run a sweep first, or set --storage to the database of a sweep"
        )
    with database.reading() as transaction:
        _refuse_earlier(database, transaction)
        if not transaction.has_table("sweeps"):
            raise DatabaseError(
                f"{database.shown} holds no sweep; run a sweep first, or set --storage to the database of a sweep"
            )


def make(database: Database) -> None:
    """Creates the database tables of sweeps if they are missing.

    Raises:
        DatabaseError: The database cannot be used, or holds sweeps of an earlier version.
    """
    database.make(TABLES)
    with database.reading() as transaction:
        _refuse_earlier(database, transaction)


def joined(
    database: Database,
    request: SweepRequest,
    study: str | None = None,
    heartbeat_s: float = HEARTBEAT_S,
    grace_s: float = GRACE_S,
) -> Sweep:
    """Study of a request; if it does not exist, it is created with all its settings.

    Raises:
        ConfigError: The study of this name was created for another request.
        DatabaseError: The database cannot be used.
    """
    study = request.study if study is None else study
    with database.alone() as transaction:
        if before := transaction.rows("SELECT asked FROM sweeps WHERE study = ?", study):
            other = differing(request, _asked(study, before[0][0]))
            require(
                not other,
                f"the study {quoted(study)} was started with other values of {', '.join(other)}; give the same values, "
                "or set --study to another study",
            )
        else:
            transaction.change("INSERT INTO sweeps VALUES (?, ?)", study, msgspec.json.encode(request).decode())
            transaction.change_all(
                "INSERT INTO sweep_settings (study, setting, place, state, deaths) VALUES (?, ?, ?, 'waiting', 0)",
                [(study, setting.key, place) for place, setting in enumerate(mixed(request))],
            )
    return Sweep(database, study, request, heartbeat_s, grace_s)


def existing(database: Database, study: str | None) -> Sweep:
    """Existing study with the given name, or if the name is None, the only study in the database.

    Raises:
        ConfigError: There is no study with that name, or no name was given and there are several studies.
        DatabaseError: The database cannot be used, or the study is not a sweep.
    """
    with database.reading() as transaction:
        known: dict[str, str] = dict(transaction.rows("SELECT study, asked FROM sweeps ORDER BY study"))
    if study is None:
        require(len(known) > 0, "the database holds no study; run a sweep first")
        require(len(known) == 1, f"the database holds several studies ({', '.join(known)}); set --study to one")
    elif study not in known:
        raise ConfigError(f"there is no study {quoted(study)}; the database holds {', '.join(known) or 'none'}")
    name = study or next(iter(known))
    return Sweep(database, name, _asked(name, known[name]))


def noted(sweep: Sweep, machine: Mapping[str, Any]) -> None:
    """Stores the description of this machine in the database."""
    about = sweep.study, platform.node(), msgspec.json.encode(machine).decode()
    with _of(sweep) as transaction:
        transaction.change("DELETE FROM sweep_machines WHERE study = ? AND machine = ?", *about[:2])
        transaction.change("INSERT INTO sweep_machines VALUES (?, ?, ?)", *about)


def worker_name() -> str:
    """Name of this worker process, unique among all workers: host name and process id."""
    return f"{platform.node()}:{os.getpid()}"


def claimed(sweep: Sweep) -> Claim | None:
    """Claims the next waiting setting; None if every setting is finished or claimed by another worker."""
    with _of(sweep) as transaction:
        now_s = transaction.now_s()
        transaction.change(
            "UPDATE sweep_settings SET deaths = deaths + 1, worker = NULL, "
            "state = CASE WHEN deaths + 1 < ? THEN 'waiting' ELSE 'refused' END "
            "WHERE study = ? AND state = 'running' AND lease_until < ?",
            *(LIVES, sweep.study, now_s),
        )
        free = transaction.rows(
            "SELECT setting FROM sweep_settings WHERE study = ? AND state = 'waiting' ORDER BY place LIMIT 1",
            sweep.study,
        )
        if not free:
            return None
        ((number,),) = transaction.rows(
            "SELECT coalesce(max(claim) + 1, 0) FROM sweep_settings WHERE study = ?", sweep.study
        )
        ((key,),) = free
        transaction.change(
            "UPDATE sweep_settings SET state = 'running', claim = ?, worker = ?, lease_until = ? "
            "WHERE study = ? AND setting = ?",
            *(number, worker_name(), now_s + sweep.grace_s, sweep.study, key),
        )
    return Claim(next(setting for setting in sweep.request.settings if setting.key == key), number)


def prolonged(sweep: Sweep, claim: Claim) -> None:
    """Prolongs the lease of a claim."""
    with _of(sweep) as transaction:
        transaction.change(
            "UPDATE sweep_settings SET lease_until = ? WHERE study = ? AND state = 'running' AND claim = ?",
            *(transaction.now_s() + sweep.grace_s, sweep.study, claim.number),
        )


def kept(sweep: Sweep, claim: Claim, result: Result) -> bool:
    """Stores a result and returns True. If the lease expired and the setting was claimed again, returns False."""
    state = "done" if isinstance(result, Outcome) else "refused"
    with _of(sweep) as transaction:
        changed = transaction.change(
            "UPDATE sweep_settings SET state = ?, result = ? WHERE study = ? AND state = 'running' AND claim = ?",
            *(state, msgspec.json.encode(result).decode(), sweep.study, claim.number),
        )
    return changed == 1


def returned(sweep: Sweep, claim: Claim) -> None:
    """Gives up a claim before its lease expires, so that another worker can claim the setting."""
    with _of(sweep) as transaction:
        transaction.change(
            "UPDATE sweep_settings SET state = 'waiting', worker = NULL "
            "WHERE study = ? AND state = 'running' AND claim = ?",
            *(sweep.study, claim.number),
        )


def given_back(sweep: Sweep, workers: Collection[str]) -> None:
    """Gives up all claims of the named workers, which have been ended."""
    with _of(sweep) as transaction:
        for worker in workers:
            transaction.change(
                "UPDATE sweep_settings SET state = 'waiting', worker = NULL "
                "WHERE study = ? AND state = 'running' AND worker = ?",
                *(sweep.study, worker),
            )


def settled(sweep: Sweep) -> bool:
    """Whether measuring is finished for all settings."""
    with _of(sweep) as transaction:
        return not transaction.rows(
            "SELECT 1 FROM sweep_settings WHERE study = ? AND state IN ('waiting', 'running') LIMIT 1", sweep.study
        )


def mixed(request: SweepRequest) -> list[Setting]:
    """Settings in the order of measurement, which is random, so that the elapsed time predicts the remaining time."""
    settings = request.settings
    return Random(request.seed).sample(settings, len(settings))


@contextmanager
def _of(sweep: Sweep) -> Iterator[Transaction]:
    """Database transaction for a study; raises DatabaseError if the study was deleted."""
    with sweep.database.alone() as transaction:
        if not transaction.rows("SELECT 1 FROM sweeps WHERE study = ?", sweep.study):
            raise DatabaseError(
                f"the study was deleted from {sweep.database.shown}; run the same command again to start over"
            )
        yield transaction


def _asked(study: str, text: str) -> SweepRequest:
    try:
        return msgspec.json.decode(text, type=SweepRequest)
    except msgspec.DecodeError:
        raise DatabaseError(
            f"the study {quoted(study)} is not a sweep that this version of dynatui can read; set --study to another "
            "study"
        ) from None


def _refuse_earlier(database: Database, transaction: Transaction) -> None:
    """Raises DatabaseError for a database of an earlier version, which stored sweeps as studies of Optuna."""
    earlier = "SELECT 1 FROM study_user_attributes WHERE key = 'asked' LIMIT 1"
    if transaction.has_table("study_user_attributes") and transaction.rows(earlier):
        raise DatabaseError(
            f"{database.shown} holds sweeps of an earlier version of dynatui, stored as studies of Optuna; show them "
            "with that version, and set --output or --storage to another place for new sweeps"
        )
