"""The database that workers share: how it is opened, transactions that no other worker's overlaps, and its errors.

Optuna commits every step of its own, so a kill between two of them would lose a setting, and two workers can take the
same trial: SQLite has no locks on rows. Here all its steps within `alone` are one transaction instead. Knows nothing of
what is kept.
"""

import random
import sqlite3
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import URL, Connection, event
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)

from decoder.errors import ConfigError, DatabaseError, first_line, quoted, require, shortened

PATIENCE_S = 30
"""How long one worker waits for the transaction of another: less than others wait until they think it dead."""
CONNECT_S = 10
"""How long a server may take to answer."""
LOCK = 0x64796E617475
"""Names the lock that transactions in PostgreSQL hold: "dynatu"."""
ATTEMPTS = 8
"""Of workers that make the tables of a new database at the same moment, all but one fail, and find them then."""
NO_ROW = "Record does not exist."
"""What Optuna says, as a KeyError, where a study or a trial was deleted."""
EXAMPLES = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
_POSTGRES = "postgresql+psycopg"
_DRIVERS = {"postgres": _POSTGRES, "postgresql": _POSTGRES, _POSTGRES: _POSTGRES, "sqlite": "sqlite"}


def of_file(path: Path) -> str:
    """The URL of an SQLite file."""
    return URL.create("sqlite", database=str(path.absolute())).render_as_string()


def understood(text: str) -> URL:
    """The URL as SQLAlchemy takes it.

    Raises:
        ConfigError: It is none, or of another kind of database.
    """
    try:
        url = sqlalchemy.make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(f"--storage is {quoted(text)}, which is no database URL; give {EXAMPLES}") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise ConfigError(f"--storage is a database of {quoted(url.drivername)}; give {EXAMPLES}")
    in_memory = driver == "sqlite" and url.database in (None, "", ":memory:")
    require(not in_memory, f"--storage is {quoted(text)}, which keeps nothing; give sqlite:///FILE")
    return url.set(drivername=driver)


def shown(url: URL) -> str:
    """For people: without the password."""
    whole = f"sqlite:///{url.database}" if url.drivername == "sqlite" else url.render_as_string(hide_password=True)
    return shortened(whole)


@contextmanager
def opened(url: URL, heartbeat_s: int | None = None, grace_s: int | None = None) -> Iterator[RDBStorage]:
    """A database to read and write, closed at the end; its tables are made where there are none.

    Args:
        url: See `understood`.
        heartbeat_s: Seconds between the signs of life of a trial; None: it gives none.
        grace_s: Seconds without one after which its worker counts as dead.

    Raises:
        DatabaseError: It cannot be reached or written, or is no database of this version of Optuna.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what goes wrong is raised, too
    with reported(url):
        storage = _made(url, heartbeat_s, grace_s)
        if url.drivername == "sqlite":
            event.listen(storage.engine, "connect", _leave_transactions_to_us)
            event.listen(storage.engine, "begin", _lock_at_once)
            storage.engine.dispose()
    with _closed(storage):
        yield storage


@contextmanager
def read_only(url: URL) -> Iterator[RDBStorage]:
    """A database that is there already, for looking at it, closed at the end.

    Raises:
        DatabaseError: It cannot be reached, or holds no study.
    """
    if url.drivername == "sqlite" and not Path(url.database or "").is_file():
        raise DatabaseError(f"there is no database {shortened(url.database)}; run a sweep first, or name its --storage")
    with reported(url):
        engine = sqlalchemy.create_engine(url, **_how(url))
        try:
            empty = not sqlalchemy.inspect(engine).has_table("studies")
        finally:
            engine.dispose()
    if empty:
        raise DatabaseError(f"{shown(url)} holds no sweep; run one first, or name its --storage")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with reported(url):
        storage = _storage(url)
    with _closed(storage):
        yield storage


@contextmanager
def alone(storage: RDBStorage) -> Iterator[None]:
    """Within, all that Optuna does with a storage is one transaction, and no other worker's runs meanwhile.

    Not for several threads at once.

    Raises:
        DatabaseError: The database is gone, locked for too long, full, or not writable; nothing of it is kept.
    """
    url = storage.engine.url
    with reported(url), storage.engine.begin() as connection:
        if url.drivername != "sqlite":
            connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        _bind(storage, connection, "create_savepoint")
        try:
            yield
        finally:
            _bind(storage, storage.engine, "conditional_savepoint")


@contextmanager
def reported(url: URL) -> Iterator[None]:
    """Within, what a database or its driver says becomes one line.

    Raises:
        DatabaseError: It said something.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise DatabaseError(f"cannot use the database {shown(url)}: {_reason(error)}; {_remedy(url)}") from error
    except ImportError as error:
        raise DatabaseError(
            "PostgreSQL needs psycopg, which cannot be imported here; run pip install 'dynatui[postgres]'"
        ) from error
    except KeyError as error:
        if error.args != (NO_ROW,):
            raise
        raise DatabaseError(f"the study is gone from {shown(url)}; run the same command again to begin anew") from error


@contextmanager
def unwarned() -> Iterator[None]:
    """Within, Optuna does not warn that heartbeats are new, or meant for its own loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used")
        yield


@contextmanager
def _closed(storage: RDBStorage) -> Iterator[None]:
    try:
        yield
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _made(url: URL, heartbeat_s: int | None, grace_s: int | None) -> RDBStorage:
    for attempt in range(ATTEMPTS):
        try:
            return _storage(url, heartbeat_s, grace_s)
        except (SQLAlchemyError, StorageInternalError) as error:
            if attempt == ATTEMPTS - 1 or not _made_by_another(error):
                raise
            time.sleep(random.random() / 10)
    raise AssertionError


def _storage(url: URL, heartbeat_s: int | None = None, grace_s: int | None = None) -> RDBStorage:
    template = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    try:
        with unwarned():
            return RDBStorage(template, engine_kwargs=_how(url), heartbeat_interval=heartbeat_s, grace_period=grace_s)
    except RuntimeError as error:
        raise DatabaseError(f"{shown(url)} is of another version of Optuna: {first_line(error)}") from error


def _made_by_another(error: Exception) -> bool:
    """Whether what was to be made is there now: PostgreSQL has several names for that."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    return isinstance(cause, IntegrityError | ProgrammingError) or (
        isinstance(cause, OperationalError) and "already exists" in str(cause)
    )


def _how(url: URL) -> dict[str, Any]:
    """How SQLAlchemy connects; heartbeats of all machines are in one time zone."""
    if url.drivername == "sqlite":
        return {"connect_args": {"timeout": PATIENCE_S}}
    settings = f"-c timezone=utc -c lock_timeout={PATIENCE_S}s"
    # A host that vanishes would otherwise be waited for until the kernel gives up, many minutes.
    gone = {"keepalives_idle": CONNECT_S, "keepalives_interval": 5, "tcp_user_timeout": 1000 * PATIENCE_S}
    return {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_S, "options": settings, **gone}}


def _leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None


def _lock_at_once(connection: Connection) -> None:
    """Two that have both read could else both go on to write."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _bind(storage: RDBStorage, to: Any, join: str) -> None:
    storage.scoped_session.remove()
    storage.scoped_session.configure(bind=to, join_transaction_mode=join)


def _reason(error: BaseException) -> str:
    """What the driver said first, without the statement and the links that SQLAlchemy adds."""
    found = first = error
    chain: BaseException | None = error
    while chain is not None:  # a full disk ends SQLite's transaction, so that to roll it back fails too
        found = chain if isinstance(chain, DBAPIError) else found
        chain = chain.__cause__ or chain.__context__
    said = found.orig if isinstance(found, DBAPIError) and found.orig is not None else first
    return first_line(said if isinstance(said, Exception) else RuntimeError(str(said)))


_REMEDIES: Mapping[str, str] = {
    "sqlite": "check that its folder is there, writable and not full, then run the same command again",
    _POSTGRES: "check that the server runs and takes this user, then run the same command again",
}


def _remedy(url: URL) -> str:
    return _REMEDIES[url.drivername]
