"""A database that several processes share: a file of SQLite, or PostgreSQL. Knows nothing of what is kept.

All that is read and written within `Database.alone` is one transaction, and no other process's runs meanwhile. Each
transaction has a connection of its own, so a server that was away for a moment is reached again by the next one.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from decoder.errors import DatabaseError, first_line, quoted, require, shortened

PATIENCE_S = 30
"""How long one worker waits for the transaction of another: less than others wait until they think it dead."""
CONNECT_S = 10
"""How long a server may take to answer."""
LOCK = 0x64796E617475
"""Names the lock that transactions in PostgreSQL hold: "dynatu"."""
EXAMPLES = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
POSTGRES = "postgresql+psycopg"
_SERVERS = ("postgres", "postgresql", POSTGRES)


@dataclass(frozen=True)
class DatabaseUrl:
    """Where a database is."""

    text: str
    """As SQLAlchemy and `understood` read it."""
    file: Path | None
    """Of SQLite; None: it is a server."""

    @property
    def shown(self) -> str:
        """For people: without the password."""
        if self.file is not None:
            return shortened(f"sqlite:///{self.file}")
        return shortened(re.sub(r"(?<=//)([^/@]*?:)[^/]*(?=@)", r"\1***", self.text))

    def unusable(self, reason: str) -> DatabaseError:
        """What went wrong, and what to do."""
        check = "the server runs and takes this user"
        if self.file is not None:
            check = "its folder is there, writable and not full"
        return DatabaseError(
            f"cannot use the database {self.shown}: {reason}; check that {check}, then run the same command again"
        )


def of_file(path: Path) -> DatabaseUrl:
    """An SQLite file."""
    return understood(f"sqlite:///{quote(str(path.absolute()))}")


def understood(text: str) -> DatabaseUrl:
    """A URL of a database.

    Raises:
        ConfigError: It is none, or of another kind of database.
    """
    scheme, _, rest = text.partition("://")
    require(_is_url(text), f"--storage is {quoted(text)}, which is no database URL; give {EXAMPLES}")
    require(scheme in (*_SERVERS, "sqlite"), f"--storage is a database of {quoted(scheme)}; give {EXAMPLES}")
    if scheme in _SERVERS:
        return DatabaseUrl(f"{POSTGRES}://{rest}", None)
    name = unquote(rest.partition("?")[0].partition("/")[2])
    require(name not in ("", ":memory:"), f"--storage is {quoted(text)}, which keeps nothing; give sqlite:///FILE")
    return DatabaseUrl(text, Path(name))


def _is_url(text: str) -> bool:
    try:
        _ = urlsplit(text).port  # raises ValueError
    except ValueError:
        return False
    return "://" in text


class Cursor(Protocol):
    """What both drivers offer of a statement."""

    @property
    def rowcount(self) -> int:
        """Rows that it changed."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> object:
        """Runs a statement."""

    def executemany(self, statement: str, values: Sequence[Sequence[Any]], /) -> object:
        """Runs it with each of some values."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Rows that it found."""


class Connection(Protocol):
    """What both drivers offer of a connection; closed, it takes back what was not committed."""

    def cursor(self) -> Cursor:
        """Runs statements."""

    def close(self) -> None:
        """Ends it."""


@dataclass(frozen=True)
class Dialect:
    """In what the two kinds differ."""

    hole: str
    """Stands for a value."""
    alone: tuple[str, ...]
    """Begins a transaction that no other overlaps: two that have both read could else both go on to write."""
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
    """Statements that are kept together or not at all; `?` stands for a value in either kind of database."""

    cursor: Cursor
    dialect: Dialect

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query finds."""
        self.cursor.execute(self._written(statement), values)
        return self.cursor.fetchall()

    def change(self, statement: str, *values: Any) -> int:
        """Runs a statement that is no query; the number of rows that it changed."""
        self.cursor.execute(self._written(statement), values)
        return self.cursor.rowcount

    def change_all(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Runs such a statement with each of some values."""
        self.cursor.executemany(self._written(statement), values)

    def now_s(self) -> float:
        """Seconds since 1970 by the clock of the database, which is one for all machines."""
        return float(self.rows(self.dialect.now)[0][0])

    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return bool(self.rows(self.dialect.has_table, name))

    def _written(self, statement: str) -> str:
        return statement.replace("?", self.dialect.hole)


@dataclass(frozen=True)
class Database:
    """A database that is there."""

    url: DatabaseUrl

    def alone(self) -> AbstractContextManager[Transaction]:
        """A transaction that no other worker's overlaps.

        Raises:
            DatabaseError: The database is gone, locked for too long, full, or not writable; nothing of it is kept.
        """
        return _transaction(self.url, self._dialect.alone, self._dialect)

    def reading(self) -> AbstractContextManager[Transaction]:
        """A transaction that writes nothing, and need not be let write.

        Raises:
            DatabaseError: The database cannot be read.
        """
        return _transaction(self.url, ("BEGIN",), self._dialect)

    @property
    def _dialect(self) -> Dialect:
        return SERVER if self.url.file is None else SQLITE


def opened(url: DatabaseUrl, tables: Sequence[str]) -> Database:
    """A database to read and write; its file and its tables are made where there are none.

    Args:
        url: See `understood`.
        tables: Statements that make what is not there yet.

    Raises:
        DatabaseError: It cannot be reached or written, or is no database.
    """
    if url.file is not None:
        with _reported(url, sqlite3.Error):
            _connected_to_file(url.file, "rwc").close()
    database = Database(url)
    with database.alone() as transaction:
        for statement in tables:
            transaction.change(statement)
    return database


@contextmanager
def _transaction(url: DatabaseUrl, begin: Sequence[str], dialect: Dialect) -> Iterator[Transaction]:
    error = sqlite3.Error if url.file is not None else _driver().Error
    with _reported(url, error):
        connection = _connected(url)
        try:
            cursor = connection.cursor()
            for statement in begin:
                cursor.execute(statement)
            yield Transaction(cursor, dialect)
            cursor.execute("COMMIT")
        finally:
            connection.close()


@contextmanager
def _reported(url: DatabaseUrl, kind: type[Exception]) -> Iterator[None]:
    """Within, what a driver says becomes one line."""
    try:
        yield
    except kind as error:
        raise url.unusable(first_line(error)) from error


def _connected(url: DatabaseUrl) -> Connection:
    if url.file is not None:
        return _connected_to_file(url.file, "rw")
    # A host that vanishes would otherwise be waited for until the kernel gives up, many minutes.
    gone = {"keepalives_idle": CONNECT_S, "keepalives_interval": 5, "tcp_user_timeout": 1000 * PATIENCE_S}
    found: Connection = _driver().connect(
        url.text.replace(POSTGRES, "postgresql", 1),
        autocommit=True,  # transactions are begun and ended by statements, as of SQLite
        connect_timeout=CONNECT_S,
        options=f"-c lock_timeout={PATIENCE_S}s",
        **gone,
    )
    return found


def _connected_to_file(file: Path, mode: str) -> sqlite3.Connection:
    """Opens a file, which only mode rwc makes: one that was removed is not to come back empty."""
    uri = f"file:{quote(str(file.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None)


def _driver() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise driver_missing() from error
    return psycopg


def driver_missing() -> DatabaseError:
    """What to install."""
    return DatabaseError("PostgreSQL needs psycopg, which cannot be imported here; run pip install 'dynatui[postgres]'")
