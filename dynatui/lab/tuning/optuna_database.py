"""Optuna's database of trials, and its errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from decoder.errors import DatabaseError, first_line
from dynatui.lab.tuning.database import PATIENCE_S, PATIENT, Database, driver

NO_ROW = "Record does not exist."
"""Text of Optuna's KeyError for a deleted study or trial."""


@contextmanager
def opened(database: Database) -> Iterator[RDBStorage]:
    """Database that is open for reading and writing in the `with` block; missing tables are created.

    Raises:
        DatabaseError: The database cannot be reached or written, or was not made by this version of Optuna.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # errors are also raised, so a log would repeat them
    with reported(database):
        storage = _storage(database)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


@contextmanager
def reported(database: Database) -> Iterator[None]:
    """Converts errors of the database or its driver into one-line errors of this package.

    Raises:
        DatabaseError: The database or its driver failed.
    """
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise database.unusable(_reason(error)) from error
    except KeyError as error:
        if error.args != (NO_ROW,):
            raise
        raise DatabaseError(
            f"the study was deleted from {database.shown}; run the same command again to start over"
        ) from error


def _storage(database: Database) -> RDBStorage:
    template = database.url.replace("{", "{{").replace("}", "}}")
    try:
        return RDBStorage(template, engine_kwargs=_how(database))
    except RuntimeError as error:
        raise DatabaseError(
            f"{database.shown} was made by another version of Optuna: {first_line(error)}; set --storage to another "
            "database"
        ) from error


def _how(database: Database) -> dict[str, Any]:
    """Connection arguments for SQLAlchemy."""
    if database.file is not None:
        # Without a pool, no connection stays open when the constructor of `RDBStorage` fails, which keeps its engine.
        return {"poolclass": NullPool, "connect_args": {"timeout": PATIENCE_S}}
    driver()
    return {"pool_pre_ping": True, "connect_args": PATIENT}


def _reason(error: BaseException) -> BaseException:
    """The database driver's first error, without the SQL statement and links that SQLAlchemy adds."""
    cause = first = error
    chain: BaseException | None = error
    while chain is not None:  # if the disk is full, the rollback fails too, and its error hides the first error
        cause = chain if isinstance(chain, DBAPIError) else cause
        chain = chain.__cause__ or chain.__context__
    return cause.orig if isinstance(cause, DBAPIError) and cause.orig is not None else first
