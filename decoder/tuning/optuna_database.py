"""The database in which Optuna keeps what a search has learnt, and its errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from decoder.bench.database import CONNECT_S, PATIENCE_S, DatabaseUrl, driver_missing
from decoder.errors import DatabaseError, first_line

NO_ROW = "Record does not exist."
"""What Optuna says, as a KeyError, where a study or a trial was deleted."""


@contextmanager
def opened(url: DatabaseUrl) -> Iterator[RDBStorage]:
    """A database to read and write, closed at the end; its tables are made where there are none.

    Raises:
        DatabaseError: It cannot be reached or written, or is no database of this version of Optuna.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what goes wrong is raised, too
    with reported(url):
        storage = _storage(url)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


@contextmanager
def reported(url: DatabaseUrl) -> Iterator[None]:
    """Within, what a database or its driver says becomes one line.

    Raises:
        DatabaseError: It said something.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise url.unusable(_reason(error)) from error
    except ImportError as error:
        raise driver_missing() from error
    except KeyError as error:
        if error.args != (NO_ROW,):
            raise
        raise DatabaseError(f"the study is gone from {url.shown}; run the same command again to begin anew") from error


def _storage(url: DatabaseUrl) -> RDBStorage:
    template = url.text.replace("{", "{{").replace("}", "}}")
    try:
        return RDBStorage(template, engine_kwargs=_how(url))
    except RuntimeError as error:
        raise DatabaseError(f"{url.shown} is of another version of Optuna: {first_line(error)}") from error


def _how(url: DatabaseUrl) -> dict[str, Any]:
    """How SQLAlchemy connects."""
    if url.file is not None:
        return {"connect_args": {"timeout": PATIENCE_S}}
    settings = f"-c lock_timeout={PATIENCE_S}s"
    return {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_S, "options": settings}}


def _reason(error: BaseException) -> str:
    """What the driver said first, without the statement and the links that SQLAlchemy adds."""
    found = first = error
    chain: BaseException | None = error
    while chain is not None:  # a full disk ends SQLite's transaction, so that to roll it back fails too
        found = chain if isinstance(chain, DBAPIError) else found
        chain = chain.__cause__ or chain.__context__
    said = found.orig if isinstance(found, DBAPIError) and found.orig is not None else first
    return first_line(said)
