"""Database shared by several processes: an SQLite file or a PostgreSQL server.

This module does not depend on what the database stores.

The statements in a `with` block of `Database.alone` form one exclusive transaction: exclusive transactions of other
processes wait until the block ends. Each transaction opens a new connection, so that the next transaction succeeds
after a short outage of the server.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from decoder.errors import DatabaseError, first_line, quoted, require, shortened

PATIENCE_S = 30
"""Maximum wait for another worker's transaction, in seconds. It is shorter than a lease, the time for which a worker
reserves a setting of a sweep, so that no lease expires during the wait.
"""
PATIENT = {
    "connect_timeout": 10,
    "options": f"-c lock_timeout={PATIENCE_S}s",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "tcp_user_timeout": 1000 * PATIENCE_S,
}
"""Connection options that bound the wait for a server; without them, a call to a vanished host blocks for minutes."""
LOCK = 0x64796E617475
"""Key of the advisory lock that each transaction in PostgreSQL acquires: the bytes of "dynatu"."""
EXAMPLES = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
POSTGRES = "postgresql+psycopg"
_SERVERS = ("postgres", "postgresql", POSTGRES)


@dataclass(frozen=True)
class Dialect:
    """SQL that differs between SQLite and PostgreSQL."""

    hole: str
    """Placeholder for a value in a statement."""
    alone: tuple[str, ...]
    """Statements that begin an exclusive transaction; without them, two workers could read the same state and then both
    write.
    """
    now: str
    has_table: str


SQLITE = Dialect(
    "?",
    ("BEGIN IMMEDIATE",),
    "SELECT (julianday('now') - 2440587.5) * 86400",
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
)
SERVER = Dialect(
    "%s",
    ("BEGIN", f"SELECT pg_advisory_xact_lock({LOCK})"),
    "SELECT extract(epoch FROM clock_timestamp())::float8",
    "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = ?",
)


@dataclass(frozen=True)
class Transaction:
    """Statements that take effect together or not at all; in a statement, `?` stands for a value in both dialects."""

    cursor: Any
    """Cursor of the SQLite or PostgreSQL driver."""
    dialect: Dialect

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows that a query returns."""
        self.cursor.execute(self._written(statement), values)
        rows: list[tuple[Any, ...]] = self.cursor.fetchall()
        return rows

    def change(self, statement: str, *values: Any) -> int:
        """Runs a statement other than a query; returns the number of changed rows."""
        self.cursor.execute(self._written(statement), values)
        return int(self.cursor.rowcount)

    def change_all(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Runs a statement once for each tuple of values."""
        self.cursor.executemany(self._written(statement), values)

    def now_s(self) -> float:
        """Seconds since 1970 by the database's clock, which is the same for all machines."""
        return float(self.rows(self.dialect.now)[0][0])

    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return bool(self.rows(self.dialect.has_table, name))

    def _written(self, statement: str) -> str:
        return statement.replace("?", self.dialect.hole)


@dataclass(frozen=True)
class Database:
    """Database at a file or URL, and its transactions."""

    url: str
    """URL in SQLAlchemy's form."""
    file: Path | None
    """Path of the SQLite file; None for a server."""

    def make(self, tables: Sequence[str]) -> None:
        """Creates the database file if it is missing, and runs the statements `tables`, which create missing tables.

        Raises:
            DatabaseError: The database cannot be reached or written, or the file is not a database.
        """
        if self.file is not None:
            with self._reported():
                _connected_to_file(self.file, "rwc").close()
        with self.alone() as transaction:
            for statement in tables:
                transaction.change(statement)

    def alone(self) -> AbstractContextManager[Transaction]:
        """Exclusive transaction: exclusive transactions of other workers wait until it ends.

        Raises:
            DatabaseError: The database is gone, locked for too long, full, or not writable; nothing was changed.
        """
        return self._transaction(self._dialect.alone)

    def reading(self) -> AbstractContextManager[Transaction]:
        """Read-only transaction, for which no permission to write is needed.

        Raises:
            DatabaseError: The database cannot be read.
        """
        return self._transaction(("BEGIN",))

    @property
    def shown(self) -> str:
        """URL for messages, without the password."""
        if self.file is not None:
            return shortened(f"sqlite:///{self.file}")
        return shortened(re.sub(r"(?<=//)([^/@]*?:)[^/]*(?=@)", r"\1***", self.url))

    def unusable(self, error: BaseException) -> DatabaseError:
        """Error that names the failure and the remedy."""
        check = "its folder exists, is writable and has space" if self.file else "the server runs and accepts this user"
        return DatabaseError(
            f"cannot use the database {self.shown}: {first_line(error)}; check that {check}, then run the same "
            "command again"
        )

    @property
    def _dialect(self) -> Dialect:
        return SQLITE if self.file is not None else SERVER

    @contextmanager
    def _transaction(self, begin: Sequence[str]) -> Iterator[Transaction]:
        """Transaction on a new connection; closing the connection rolls back an unfinished transaction."""
        with self._reported(), closing(self._connected()) as connection:
            cursor = connection.cursor()
            for statement in begin:
                cursor.execute(statement)
            yield Transaction(cursor, self._dialect)
            cursor.execute("COMMIT")

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Converts errors of the driver into one-line errors of this package."""
        kind: type[Exception] = sqlite3.Error if self.file is not None else driver().Error
        try:
            yield
        except kind as error:
            raise self.unusable(error) from error

    def _connected(self) -> Any:
        if self.file is not None:
            return _connected_to_file(self.file, "rw")
        # with autocommit, the driver begins no transaction itself; only the statements of `_transaction` begin one
        return driver().connect(self.url.replace(POSTGRES, "postgresql", 1), autocommit=True, **PATIENT)


def of_file(path: Path) -> Database:
    """Database in an SQLite file."""
    return understood(f"sqlite:///{quote(str(path.absolute()))}")


def understood(url: str) -> Database:
    """Database at a URL.

    Raises:
        ConfigError: The URL is invalid, or names another kind of database.
    """
    scheme, _, rest = url.partition("://")
    require(_is_url(url), f"--storage is {quoted(url)}, which is not a database URL; give {EXAMPLES}")
    require(
        scheme in (*_SERVERS, "sqlite"),
        f"--storage names a database of the kind {quoted(scheme)}, which is not supported; give {EXAMPLES}",
    )
    if scheme in _SERVERS:
        return Database(f"{POSTGRES}://{rest}", None)
    name = unquote(rest.partition("?")[0].partition("/")[2])
    require(
        name not in ("", ":memory:"), f"--storage is {quoted(url)}, which stores nothing on disk; give sqlite:///FILE"
    )
    return Database(url, Path(name))


def driver() -> Any:
    """Driver of PostgreSQL; raises DatabaseError if it is not installed."""
    try:
        import psycopg  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise DatabaseError(
            "PostgreSQL needs psycopg, which cannot be imported here; run pip install 'dynatui[postgres]'"
        ) from error
    return psycopg


def _is_url(text: str) -> bool:
    try:
        _ = urlsplit(text).port  # raises ValueError for some invalid URLs
    except ValueError:
        return False
    return "://" in text


def _connected_to_file(file: Path, mode: str) -> sqlite3.Connection:
    """Connection to an SQLite file. Mode rwc creates a missing file; in mode rw, a missing file is an error."""
    uri = f"file:{quote(str(file.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None)
