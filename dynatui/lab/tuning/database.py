"""Optuna's database of trials: an SQLite file or a PostgreSQL server. Independent of the tuned settings."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from decoder.errors import DatabaseError, first_line, quoted, require, shortened

PATIENCE_S = 30
"""Maximum wait for another process's transaction, in seconds."""
PATIENT = {
    "connect_timeout": 10,
    "options": f"-c lock_timeout={PATIENCE_S}s",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "tcp_user_timeout": 1000 * PATIENCE_S,
}
"""Options of PostgreSQL connections that bound waits; without them, a call to a vanished host blocks for minutes."""
EXAMPLES = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
POSTGRES = "postgresql+psycopg"
_SERVERS = ("postgres", "postgresql", POSTGRES)
NO_ROW = "Record does not exist."
"""Text of Optuna's KeyError for a deleted study or trial."""


def understood(url: str) -> str:
    """The URL in SQLAlchemy's form; raises ConfigError if it is invalid or the database is not SQLite or PostgreSQL."""
    scheme, _, rest = url.partition("://")
    require(_is_url(url), f"--storage is {quoted(url)}, which is not a database URL; give {EXAMPLES}")
    require(
        scheme in (*_SERVERS, "sqlite"),
        f"--storage names a database of the kind {quoted(scheme)}, which is not supported; give {EXAMPLES}",
    )
    if scheme in _SERVERS:
        return f"{POSTGRES}://{rest}"
    require(
        _file(url) not in ("", ":memory:"),
        f"--storage is {quoted(url)}, which stores nothing on disk; give sqlite:///FILE",
    )
    return url


def shown(url: str) -> str:
    """A URL in SQLAlchemy's form, for messages, without the password."""
    if file := _file(url):
        return shortened(f"sqlite:///{Path(file)}")
    return shortened(re.sub(r"(?<=//)([^/@]*?:)[^/]*(?=@)", r"\1***", url))


@contextmanager
def opened(url: str) -> Iterator[RDBStorage]:
    """Database of trials, open in the `with` block; raises ConfigError or DatabaseError if it cannot be used."""
    url = understood(url)
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # errors are also raised, so a log would repeat them
    with reported(url):
        storage = _storage(url)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


@contextmanager
def reported(url: str) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        check = (
            "its folder exists, is writable and has space" if _file(url) else "the server runs and accepts this user"
        )
        raise DatabaseError(
            f"cannot use the database {shown(url)}: {first_line(_reason(error))}; check that {check}, then run the "
            "same command again"
        ) from error
    except KeyError as error:
        if error.args != (NO_ROW,):
            raise
        raise DatabaseError(
            f"the study was deleted from {shown(url)}; run the same command again to start over"
        ) from error


def _storage(url: str) -> RDBStorage:
    template = url.replace("{", "{{").replace("}", "}}")
    try:
        return RDBStorage(template, engine_kwargs=_engine_options(url))
    except RuntimeError as error:
        raise DatabaseError(
            f"{shown(url)} was made by another version of Optuna: {first_line(error)}; set --storage to another "
            "database"
        ) from error


def _engine_options(url: str) -> dict[str, Any]:
    if _file(url):
        # If the constructor of `RDBStorage` fails, its engine is not disposed of; a pool would keep connections open.
        return {"poolclass": NullPool, "connect_args": {"timeout": PATIENCE_S}}
    try:
        import psycopg  # noqa: F401, PLC0415 - an optional dependency
    except ImportError as error:
        raise DatabaseError(
            "PostgreSQL needs psycopg, which cannot be imported here; run pip install 'dynatui[postgres]'"
        ) from error
    return {"pool_pre_ping": True, "connect_args": PATIENT}


def _reason(error: BaseException) -> BaseException:
    """The database driver's first error, without the SQL statement and links that SQLAlchemy adds."""
    cause = first = error
    chain: BaseException | None = error
    while chain is not None:  # if the disk is full, the rollback fails too, and its error hides the first error
        cause = chain if isinstance(chain, DBAPIError) else cause
        chain = chain.__cause__ or chain.__context__
    return cause.orig if isinstance(cause, DBAPIError) and cause.orig is not None else first


def _file(url: str) -> str:
    """Path of an SQLite file; empty for a server."""
    scheme, _, rest = url.partition("://")
    return unquote(rest.partition("?")[0].partition("/")[2]) if scheme == "sqlite" else ""


def _is_url(text: str) -> bool:
    try:
        _ = urlsplit(text).port  # raises ValueError for some invalid URLs
    except ValueError:
        return False
    return "://" in text
